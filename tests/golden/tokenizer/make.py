"""Makes the small tokenizers and random.json with the `tokenizers` package (0.23.3): python3 make.py"""
import json
import os
from tokenizers import Tokenizer,AddedToken,Regex,models,normalizers as N,pre_tokenizers as P,decoders as D,processors as PP,trainers as T
out=os.path.dirname(os.path.abspath(__file__))+'/'
words="the small engine reads a file and turns it into numbers; every number stands for a piece of a word. When the text is long, the engine cuts it where a word ends, so that it can remember what it has seen before. A reader who likes order will find the same pieces again and again: walking, walked, walks; reading, reader, reads; number, numbers, numbered. It's not what you'd expect, we're told, but they've seen it. "
more="Der kleine Motor liest 1234 Zeilen über Größen und Maße. Le petit moteur était là, déjà prêt à lire 56 mots. Мотор читает слова и числа 789. Η μηχανή διαβάζει λέξεις. 小さなエンジンが文字を読みます。小引擎读取文字，把它们变成数字。작은 엔진이 글을 읽습니다. छोटा इंजन शब्द पढ़ता है। المحرك الصغير يقرأ الكلمات. "
code="def read(path):\n    with open(path) as f:\n        return f.read()\n\tif (x == 0) { y += 1; }\n\n"
corpus=[words,more,code]*4+[w for w in words.split()]
L3=r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
def save(t,name):
    d=json.loads(t.to_str()); open(out+name+'.json','w').write(json.dumps(d,ensure_ascii=False,separators=(',',':'))+'\n')
sp=[AddedToken("<s>",special=True),AddedToken("</s>",special=True,rstrip=True),AddedToken("<word>",single_word=True),AddedToken("<Left>",lstrip=True,normalized=True)]
# 1 byte level
t=Tokenizer(models.BPE(ignore_merges=True)); t.normalizer=N.NFC()
t.pre_tokenizer=P.Sequence([P.Split(Regex(L3),"isolated"),P.ByteLevel(add_prefix_space=False,use_regex=False)]); t.decoder=D.ByteLevel()
t.train_from_iterator(corpus,T.BpeTrainer(vocab_size=512,initial_alphabet=sorted(P.ByteLevel.alphabet()),show_progress=False))
t.add_tokens(sp); t.post_processor=PP.TemplateProcessing(single="<s> $A </s>",special_tokens=[("<s>",t.token_to_id("<s>")),("</s>",t.token_to_id("</s>"))]); save(t,'bytes')
# 2 marks with fallback, no pre-tokenizer
t=Tokenizer(models.BPE(unk_token="<unk>",fuse_unk=True,byte_fallback=True)); t.pre_tokenizer=P.Metaspace()
t.train_from_iterator(corpus,T.BpeTrainer(vocab_size=700,special_tokens=["<unk>"]+[f"<0x{i:02X}>" for i in range(256)],limit_alphabet=70,show_progress=False))
t.pre_tokenizer=None; t=Tokenizer.from_str(t.to_str())
d=json.loads(t.to_str()); d['pre_tokenizer']=None; d['added_tokens']=[a for a in d['added_tokens'] if a['content']=='<unk>']; t=Tokenizer.from_str(json.dumps(d))
t.normalizer=N.Sequence([N.Prepend("▁"),N.Replace(" ","▁")]); t.decoder=D.Sequence([D.Replace("▁"," "),D.ByteFallback(),D.Fuse(),D.Strip(" ",1,0)]); t.add_tokens(sp); save(t,'marks')
# 3 unigram
t=Tokenizer(models.Unigram()); t.normalizer=N.Sequence([N.NFKC(),N.Replace(Regex(" {2,}")," "),N.Strip(False,True)]); t.pre_tokenizer=P.Metaspace(); t.decoder=D.Metaspace()
t.train_from_iterator(corpus,T.UnigramTrainer(vocab_size=400,unk_token="<unk>",special_tokens=["<unk>"],show_progress=False)); t.add_tokens(sp); save(t,'unigram')
# 4 wordpiece
t=Tokenizer(models.WordPiece(unk_token="[UNK]")); t.normalizer=N.BertNormalizer(); t.pre_tokenizer=P.BertPreTokenizer(); t.decoder=D.WordPiece()
t.train_from_iterator(corpus,T.WordPieceTrainer(vocab_size=400,special_tokens=["[UNK]"],show_progress=False)); t.add_tokens(sp); save(t,'pieces')
# 5 splits: prefix space, digits, punctuation, o200k-like regex through the general engine
t=Tokenizer(models.BPE()); t.normalizer=N.Sequence([N.NFKC(),N.Lowercase()])
O2=r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
t.pre_tokenizer=P.Sequence([P.Digits(True),P.Punctuation("merged_with_previous"),P.Split(Regex(O2),"removed",invert=True),P.ByteLevel(add_prefix_space=True,use_regex=True)]); t.decoder=D.ByteLevel()
t.train_from_iterator(corpus,T.BpeTrainer(vocab_size=420,initial_alphabet=sorted(P.ByteLevel.alphabet()),show_progress=False)); t.add_tokens(sp); save(t,'splits')
RANGES=[(0x20,0x7f),(0x20,0x7f),(0x61,0x7b),(0x61,0x7b),(0x30,0x3a),(0x20,0x21),(0x9,0xe),(0,0x20),(0xa0,0x250),(0x250,0x370),(0x300,0x370),(0x370,0x600),(0x600,0x900),(0x900,0x1000),(0x1100,0x1200),(0x1680,0x1820),(0x1e00,0x2070),(0x2070,0x2c00),(0x2e00,0x3200),(0x3400,0xa000),(0xa000,0xac00),(0xac00,0xd7a4),(0xe000,0xe100),(0xf900,0xff00),(0xff00,0x10000),(0x10000,0x11000),(0x11000,0x12000),(0x16000,0x17000),(0x1cc00,0x1d400),(0x1d400,0x1f000),(0x1f000,0x1fc00),(0x20000,0x32000),(0xe0000,0xe01f0),(0x10fff0,0x110000)]
PIECES=["<s>","</s>"," <word> ","<Left>","'s","'LL","\r\n","  "," the","e\u0301"]
M=(1<<64)-1
class G:
    def __init__(s,x): s.x=x
    def next(s,n):
        s.x=(s.x+0x9e3779b97f4a7c15)&M; z=s.x
        z=((z^(z>>30))*0xbf58476d1ce4e5b9)&M; z=((z^(z>>27))*0x94d049bb133111eb)&M; z^=z>>31
        return (z>>33)%n
def text(g):
    o=[]
    for _ in range(g.next(16)):
        if g.next(8)==0: o.append(PIECES[g.next(len(PIECES))]); continue
        lo,hi=RANGES[g.next(len(RANGES))]
        for _ in range(1+g.next(4)): o.append(chr(lo+g.next(hi-lo)))
    return ''.join(o)
res={"strings":100000,"block":10000,"hash":{}}
texts=[]
g=G(20240229)
for i in range(100000): texts.append(text(g))
for name in ["bytes","marks","unigram","pieces","splits"]:
    t=Tokenizer.from_file(out+name+'.json'); hs=[];h=0xcbf29ce484222325
    for i,x in enumerate(texts):
        e=t.encode(x,add_special_tokens=bool(i&1))
        ids=e.ids
        b=b''.join(k.to_bytes(4,'little') for k in ids)+b'\xff'
        d=t.decode(ids,skip_special_tokens=bool(i&2)).encode()
        for c in b+d: h=((h^c)*0x100000001b3)&M
        if i%10000==9999: hs.append('%016x'%h)
    res["hash"][name]=hs; print(name,t.get_vocab_size(),hs[-1],flush=True)
json.dump(res,open(out+'random.json','w'),indent=1)
