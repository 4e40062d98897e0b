"""Makes the optimizer trajectories of this folder: python make.py OUT.

Needs torch, transformers and bitsandbytes. Inputs are a formula (see tests/ops/test_optimizer.c), so
only results are stored."""
import os
os.environ["TORCHDYNAMO_DISABLE"]="1"
import math, sys
from typing import Optional
import torch, numpy as np
out=sys.argv[1]
def formula(n,k,s):
    i=np.arange(n,dtype=np.int64)
    return (((i*7919+s*104729+k*15485863)%2001-1000)/1000.0).astype(np.float32)
shapes=[(3,17),(65,)]
def params(): return [torch.nn.Parameter(torch.from_numpy(formula(int(np.prod(s)),k,0)).reshape(s)) for k,s in enumerate(shapes)]
def grads(step): return [torch.from_numpy(formula(int(np.prod(s)),k+2,step)).reshape(s) for k,s in enumerate(shapes)]
def run(make,clip=None,steps=10):
    ps=params(); opt=make(ps); res=[]
    for t in range(1,steps+1):
        for p,g in zip(ps,grads(t)): p.grad=g.clone()
        if clip is not None: torch.nn.utils.clip_grad_norm_(ps,clip)
        opt.step()
        res.append(np.concatenate([p.detach().numpy().ravel() for p in ps]))
    return np.stack(res)
from transformers.optimization import Adafactor
import bitsandbytes as bnb
T={}
T["sgd"]=run(lambda p:torch.optim.SGD(p,lr=0.01,weight_decay=0.1))
T["sgd-momentum"]=run(lambda p:torch.optim.SGD(p,lr=0.01,momentum=0.9,weight_decay=0.1))
T["sgd-nesterov"]=run(lambda p:torch.optim.SGD(p,lr=0.01,momentum=0.9,nesterov=True))
T["adam"]=run(lambda p:torch.optim.Adam(p,lr=0.01,weight_decay=0.1))
T["adamw"]=run(lambda p:torch.optim.AdamW(p,lr=0.01,weight_decay=0.1))
T["adamw-clip"]=run(lambda p:torch.optim.AdamW(p,lr=0.01,weight_decay=0.1,betas=(0.8,0.95),eps=1e-6),clip=0.5)
T["adamw-groups"]=run(lambda p:torch.optim.AdamW([{"params":[p[0]],"lr":0.01,"weight_decay":0.1},{"params":[p[1]],"lr":0.005,"weight_decay":0.0}]))
T["adafactor"]=run(lambda p:Adafactor(p,lr=0.01,relative_step=False,scale_parameter=False))
T["adafactor-decay"]=run(lambda p:Adafactor(p,lr=0.01,relative_step=False,scale_parameter=False,weight_decay=0.1))
T["lion"]=run(lambda p:bnb.optim.Lion32bit(p,lr=0.01,weight_decay=0.1,min_8bit_size=10**9))
from adam_mini import Adam_mini
T["adam-mini"]=run(lambda p:Adam_mini([("mlp.a",p[0]),("b",p[1])],lr=0.01,weight_decay=0.1,verbose=False))
for n,v in T.items(): v.astype("<f4").tofile(f"{out}/{n}.f32"); print(n,v.shape,v[-1][:3])
src=open(os.path.dirname(bnb.__file__)+"/backends/triton/kernels_optim.py").read()
a=src.index("# Pure torch implementation for reference"); b=src.index("# Mixed torch + triton")
ns=dict(torch=torch,math=math,Optional=Optional)
exec(src[a:b].replace("@torch.compile",""),ns)
import bitsandbytes.functional as F
m=F.create_dynamic_map(True); v=F.create_dynamic_map(False)
np.concatenate([m.numpy(),v.numpy()]).astype("<f4").tofile(out+"/dynamic-maps.f32")
n=13*321
p=torch.from_numpy(formula(n,0,0)); blocks=(n+255)//256
s1=torch.zeros(n,dtype=torch.uint8); s2=torch.zeros(n,dtype=torch.uint8); a1=torch.zeros(blocks); a2=torch.zeros(blocks)
for t in range(1,6):
    g=torch.from_numpy(formula(n,2,t)*np.array([1,0.125,0.015625,0.001953125],np.float32)[np.arange(n)%4])
    ns["optimizer_update_8bit_blockwise_pytorch"](p,g,s1,s2,0.9,0.999,0,0,1e-8,t,0.01,m,v,a1,a2,0.1,1.0,False,optimizer_name="adam")
p.numpy().astype("<f4").tofile(out+"/adamw-8bit.f32")
np.concatenate([s1.numpy(),s2.numpy()]).tofile(out+"/adamw-8bit.u8")
print(p[:4],s1[:8],s2[:8],a1[:2])
