/* named_template.c - chat templates by the names that Axolotl gives them, for conversations of
 * system, user and assistant. The marks in them are part of the formats. */
#include "format/chat/named_template.h"

#include "base/word.h"

/* Parts of a template: the system text in s and the other messages in turns; one turn after the
 * other, its text in c; the generation prompt. */
#define SPLIT                                                                                      \
    "{% if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'] %}"                 \
    "{% set turns = messages[1:] %}{% else %}{% set s = "
#define TURNS     " %}{% set turns = messages %}{% endif %}"
#define EACH      "{% for m in turns %}{% set c = "
#define USER      " %}{% if m['role'] == 'user' %}{{ "
#define ASSISTANT " }}{% elif m['role'] == 'assistant' %}"
#define OTHER                                                                                      \
    "{% else %}{{ raise_exception('this template has no role ' + m['role']) }}"                    \
    "{% endif %}{% endfor %}"
#define ASK   "{% if add_generation_prompt %}{{ "
#define ASKED " }}{% endif %}"

static const af_named_template table[] = {
    {"alpaca",
     "{{ bos_token }}" SPLIT "''" TURNS "{{ s }}" EACH
     "m['content'] %}{% if s or not loop.first %}{{ '\\n\\n' }}{% endif" USER
     "'### Instruction:\\n' + c" ASSISTANT "{{ '### Response:\\n' + c + eos_token" ASKED
     "{% endfor %}" ASK "'\\n\\n### Response:\\n'" ASKED,
     NULL},
    {"aya cohere",
     "{{ bos_token }}" SPLIT "''" TURNS
     "{% if s %}{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + s + "
     "'<|END_OF_TURN_TOKEN|>'" ASKED EACH "m['content'] | trim" USER
     "'<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + c + '<|END_OF_TURN_TOKEN|>'" ASSISTANT
     "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' + c + "
     "'<|END_OF_TURN_TOKEN|>' }}" OTHER ASK "'<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'" ASKED,
     "<|END_OF_TURN_TOKEN|>"},
    {"deepseek_v2",
     "{{ bos_token }}" SPLIT "''" TURNS "{% if s %}{{ s + '\\n\\n'" ASKED EACH "m['content']" USER
     "'<｜User｜>' + c" ASSISTANT "{{ '<｜Assistant｜>' + c + eos_token }}" OTHER ASK
     "'<｜Assistant｜>'" ASKED,
     NULL},
    {"deepseek_v3",
     "{{ bos_token }}" SPLIT "''" TURNS "{% if s %}{{ s" ASKED EACH "m['content']" USER
     "'<｜User｜>' + c" ASSISTANT "{{ '<｜Assistant｜>' + c.split('</think>')[-1] + "
     "'<｜end▁of▁sentence｜>' }}" OTHER ASK "'<｜Assistant｜>'" ASKED,
     "<｜end▁of▁sentence｜>"},
    {"exaone",
     SPLIT "''" TURNS "{{ '[|system|]' + s + '[|endofturn|]\\n' }}" EACH "m['content']" USER
           "'[|user|]' + c + '\\n'" ASSISTANT
           "{{ '[|assistant|]' + c + '[|endofturn|]\\n' }}" OTHER ASK "'[|assistant|]'" ASKED,
     "[|endofturn|]"},
    {"falcon_h1",
     "{{ bos_token }}" SPLIT "''" TURNS
     "{% if s %}{{ '<|im_start|>system\\n' + s + '<|im_end|>\\n'" ASKED EACH "m['content']" USER
     "'<|im_start|>user\\n' + c + '<|im_end|>\\n'" ASSISTANT
     "{{ '<|im_start|>assistant\\n' + c + '<|im_end|>\\n' }}" OTHER ASK
     "'<|im_start|>assistant\\n'" ASKED,
     "<|im_end|>"},
    {"nemotron_h",
     SPLIT "''" TURNS "{% if s %}{{ '<|im_start|>system\\n' + s + '<|im_end|>\\n'" ASKED EACH
           "m['content']" USER "'<|im_start|>user\\n' + c + '<|im_end|>\\n'" ASSISTANT
           "{{ '<|im_start|>assistant\\n' + c + '<|im_end|>\\n' }}" OTHER ASK
           "'<|im_start|>assistant\\n'" ASKED,
     "<|im_end|>"},
    {"qwen2_vl",
     SPLIT "'You are a helpful assistant.'" TURNS
           "{% if s %}{{ '<|im_start|>system\\n' + s + '<|im_end|>\\n'" ASKED EACH
           "m['content']" USER "'<|im_start|>user\\n' + c + '<|im_end|>\\n'" ASSISTANT
           "{{ '<|im_start|>assistant\\n' + c + '<|im_end|>\\n' }}" OTHER ASK
           "'<|im_start|>assistant\\n'" ASKED,
     "<|im_end|>"},
    {"qwen_25",
     SPLIT "'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.'" TURNS
           "{% if s %}{{ '<|im_start|>system\\n' + s + '<|im_end|>\\n'" ASKED EACH
           "m['content']" USER "'<|im_start|>user\\n' + c + '<|im_end|>\\n'" ASSISTANT
           "{{ '<|im_start|>assistant\\n' + c + '<|im_end|>\\n' }}" OTHER ASK
           "'<|im_start|>assistant\\n'" ASKED,
     "<|im_end|>"},
    {"gemma",
     "{{ bos_token }}" SPLIT "''" TURNS
     "{% if s %}{{ raise_exception('this template has no role system')" ASKED EACH
     "m['content'] | trim" USER "'<start_of_turn>user\\n' + c + '<end_of_turn>\\n'" ASSISTANT
     "{{ '<start_of_turn>model\\n' + c + '<end_of_turn>\\n' }}" OTHER ASK
     "'<start_of_turn>model\\n'" ASKED,
     "<end_of_turn>"},
    {"gemma3 gemma3n",
     "{{ bos_token }}" SPLIT "''" TURNS EACH
     "(s + '\\n\\n' if s and loop.first else '') + (m['content'] | trim)" USER
     "'<start_of_turn>user\\n' + c + '<end_of_turn>\\n'" ASSISTANT
     "{{ '<start_of_turn>model\\n' + c + '<end_of_turn>\\n' }}" OTHER ASK
     "'<start_of_turn>model\\n'" ASKED,
     "<end_of_turn>"},
    {"gemma4 gemma4_unified",
     "{{ bos_token }}" SPLIT "''" TURNS
     "{% if s %}{{ '<|turn>system\\n' + s.strip() + '<turn|>\\n'" ASKED EACH
     "m['content'] | trim" USER "'<|turn>user\\n' + c + '<turn|>\\n'" ASSISTANT
     "{{ '<|turn>model\\n' + c + '<turn|>\\n' }}" OTHER ASK "'<|turn>model\\n'" ASKED,
     "<turn|>"},
    {"llama3",
     "{{ bos_token }}" SPLIT "''" TURNS
     "{% if s %}{{ '<|start_header_id|>system<|end_header_id|>\\n\\n' + "
     "s.strip() + '<|eot_id|>'" ASKED EACH "m['content'] | trim" USER
     "'<|start_header_id|>user<|end_header_id|>\\n\\n' + c + '<|eot_id|>'" ASSISTANT
     "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' + c + "
     "'<|eot_id|>' }}" OTHER ASK "'<|start_header_id|>assistant<|end_header_id|>\\n\\n'" ASKED,
     "<|eot_id|>"},
    {"llama3_2_vision",
     "{{ bos_token }}" SPLIT "''" TURNS
     "{{ '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge "
     "Date: December 2023\\nToday Date: ' + strftime_now('%d %b %Y') + '\\n\\n' "
     "+ s.strip() + '<|eot_id|>' }}" EACH "m['content']" USER
     "'<|start_header_id|>user<|end_header_id|>\\n\\n' + c + '<|eot_id|>'" ASSISTANT
     "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' + c + "
     "'<|eot_id|>' }}" OTHER ASK "'<|start_header_id|>assistant<|end_header_id|>\\n\\n'" ASKED,
     "<|eot_id|>"},
    {"llama4",
     "{{ bos_token }}" SPLIT "''" TURNS
     "{% if s %}{{ '<|header_start|>system<|header_end|>\\n\\n' + s.strip() + "
     "'<|eot|>'" ASKED EACH "m['content']" USER
     "'<|header_start|>user<|header_end|>\\n\\n' + c + '<|eot|>'" ASSISTANT
     "{{ '<|header_start|>assistant<|header_end|>\\n\\n' + c + '<|eot|>' }}" OTHER ASK
     "'<|header_start|>assistant<|header_end|>\\n\\n'" ASKED,
     "<|eot|>"},
    {"jamba",
     SPLIT "''" TURNS "{{ '<|startoftext|><|bom|><|system|> ' + s + '<|eom|>' }}" EACH
           "m['content']" USER "'<|bom|><|user|> ' + c + '<|eom|>'" ASSISTANT
           "{{ '<|bom|><|assistant|> ' + c + '<|eom|>' }}" OTHER ASK "'<|bom|><|assistant|>'" ASKED,
     "<|eom|>"},
    {"llava",
     SPLIT "''" TURNS "{% if s %}{{ s + ' '" ASKED EACH "m['content']" USER
           "'USER: ' + c + ' '" ASSISTANT
           "{% generation %}{{ 'ASSISTANT: ' + c + ' ' }}{% endgeneration %}" OTHER ASK
           "'ASSISTANT:'" ASKED,
     NULL},
    {"metharme",
     "{{ bos_token }}" SPLIT
     "'Enter RP mode. You shall reply to the user while staying in character. "
     "Your responses must be detailed, creative, immersive, and drive the "
     "scenario forward.'" TURNS "{{ '<|system|>' + s }}" EACH "m['content'] | trim" USER
     "'<|user|>' + c" ASSISTANT "{% generation %}{{ '<|model|>' + c }}{% endgeneration %}" OTHER ASK
     "'<|model|>' }}{% else %}{% generation %}{{ eos_token }}{% endgeneration %}"
     "{% endif %}",
     NULL},
    {"mistral_v1",
     "{{ bos_token }}" SPLIT "''" TURNS EACH
     "(s + '\\n\\n' if s and loop.first else '') + m['content']" USER
     "' [INST] ' + c + ' [/INST]'" ASSISTANT "{{ ' ' + c + eos_token }}" OTHER,
     NULL},
    {"mistral_v2v3",
     "{{ bos_token }}" SPLIT "''" TURNS EACH
     "(s + '\\n\\n' if s and loop.last and m['role'] == 'user' else '') + "
     "m['content']" USER "'[INST] ' + c + '[/INST]'" ASSISTANT
     "{% generation %}{{ ' ' + c.strip() + eos_token }}{% endgeneration %}" OTHER,
     NULL},
    {"mistral_v3_tekken pixtral",
     "{{ bos_token }}" SPLIT "''" TURNS EACH
     "(s + '\\n\\n' if s and loop.last and m['role'] == 'user' else '') + "
     "m['content']" USER "'[INST]' + c + '[/INST]'" ASSISTANT
     "{% generation %}{{ c + eos_token }}{% endgeneration %}" OTHER,
     NULL},
    {"mistral_v7_tekken",
     "{{ bos_token }}" SPLIT
     "'You are Mistral Small 3, a Large Language Model (LLM) created by Mistral "
     "AI, a French startup headquartered in Paris.\\nYour knowledge base was "
     "last updated on 2023-10-01. The current date is ' + "
     "strftime_now('%Y-%m-%d') + '.\\n\\nWhen you\\'re not sure about some "
     "information, you say that you don\\'t have the information and don\\'t "
     "make up anything.\\nIf the user\\'s question is not clear, ambiguous, or "
     "does not provide enough context for you to accurately answer the "
     "question, you do not try to answer it right away and you rather ask the "
     "user to clarify their request (e.g. \"What are some good restaurants "
     "around me?\" => \"Where are you?\" or \"When is the next flight to "
     "Tokyo\" => \"Where do you travel from?\")'" TURNS
     "{{ '[SYSTEM_PROMPT]' + s + '[/SYSTEM_PROMPT]' }}" EACH "m['content']" USER
     "'[INST]' + c + '[/INST]'" ASSISTANT "{{ c + eos_token }}" OTHER,
     NULL},
    {"phi_3",
     "{{ bos_token }}" SPLIT "''" TURNS "{% if s %}{{ '<|system|>\\n' + s + '<|end|>\\n'" ASKED EACH
     "m['content']" USER "'<|user|>\\n' + c + '<|end|>\\n<|assistant|>\\n'" ASSISTANT
     "{{ c + '<|end|>\\n' }}" OTHER,
     "<|end|>"},
    {"phi_35",
     SPLIT "''" TURNS "{% if s %}{{ '<|system|>\\n' + s + '<|end|>\\n'" ASKED EACH
           "m['content']" USER "'<|user|>\\n' + c + '<|end|>\\n'" ASSISTANT
           "{{ '<|assistant|>\\n' + c + '<|end|>\\n' }}" OTHER ASK "'<|assistant|>\\n'" ASKED,
     "<|end|>"},
    {"phi_4",
     SPLIT "'You are Phi, a language model trained by Microsoft to help users. Your "
           "role as an assistant involves thoroughly exploring questions through a "
           "systematic thinking process before providing the final precise and "
           "accurate solutions. This requires engaging in a comprehensive cycle of "
           "analysis, summarizing, exploration, reassessment, reflection, "
           "backtracing, and iteration to develop well-considered thinking process. "
           "Please structure your response into two main sections: Thought and "
           "Solution using the specified format: <think> {Thought section} </think> "
           "{Solution section}. In the Thought section, detail your reasoning process "
           "in steps. Each step should include detailed considerations such as "
           "analysing questions, summarizing relevant findings, brainstorming new "
           "ideas, verifying the accuracy of the current steps, refining any errors, "
           "and revisiting previous steps. In the Solution section, based on various "
           "attempts, explorations, and reflections from the Thought section, "
           "systematically present the final solution that you deem correct. The "
           "Solution section should be logical, accurate, and concise and detail "
           "necessary steps needed to reach the conclusion. Now, try to solve the "
           "following question through the above guidelines:'" TURNS
           "{{ '<|im_start|>system<|im_sep|>' + s + '<|im_end|>' }}" EACH "m['content']" USER
           "'<|im_start|>user<|im_sep|>' + c + '<|im_end|>'" ASSISTANT
           "{{ '<|im_start|>assistant<|im_sep|>' + c + '<|im_end|>' }}" OTHER ASK
           "'<|im_start|>assistant<|im_sep|>'" ASKED,
     "<|im_end|>"},
    {"qwen3 qwen3_5",
     SPLIT "''" TURNS "{% if s %}{{ '<|im_start|>system\\n' + s + '<|im_end|>\\n'" ASKED
           "{% set ns = namespace(last=-1) %}{% for m in turns %}"
           "{% if m['role'] == 'user' %}{% set ns.last = loop.index0 %}{% endif %}"
           "{% endfor %}" EACH "m['content']" USER
           "'<|im_start|>user\\n' + c + '<|im_end|>\\n'" ASSISTANT
           "{% set own = m['reasoning_content'] is string %}"
           "{% set split = not own and '</think>' in c %}"
           "{% set t = m['reasoning_content'] if own else c.sp"
           "lit('</think>')[0].split('<think>')[-1] if split else '' %}"
           "{% set c = c.split('</think>')[-1].lstrip('\\n') if split else c %}{{ "
           "'<|im_start|>assistant\\n' }}"
           "{% if loop.index0 > ns.last and (loop.last or t) %}{{ '<think>\\n' + "
           "t.strip('\\n') + '\\n</think>\\n\\n' + c.lstrip('\\n') }}{% else %}{{ c" ASKED
           "{{ '<|im_end|>\\n' }}" OTHER ASK "'<|im_start|>assistant\\n'" ASKED,
     "<|im_end|>"},
    {"exaone4",
     SPLIT "''" TURNS "{% if s %}{{ '[|system|]\\n' + s + '[|endofturn|]\\n'" ASKED EACH
           "m['content']" USER "'[|user|]\\n' + c + '[|endofturn|]\\n'" ASSISTANT
           "{{ '[|assistant|]\\n<think>\\n\\n</think>\\n\\n' + "
           "(c.split('</think>')[-1].lstrip('\\n') if '</think>' in c else c) + "
           "'[|endofturn|]\\n' }}" OTHER ASK "'[|assistant|]\\n'" ASKED,
     "[|endofturn|]"},
    {"chatml",
     "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + "
     "m['content'] + '<|im_end|>\\n' }}{% endfor %}" ASK "'<|im_start|>assistant\\n'" ASKED,
     "<|im_end|>"},
};

const af_named_template *af_named_template_at(int i)
{
    return i >= 0 && (size_t)i < AF_LEN(table) ? &table[i] : NULL;
}

const af_named_template *af_named_template_find(const char *name)
{
    for (size_t i = 0; i < AF_LEN(table); i++)
        if (af_word_listed(name, table[i].names))
            return &table[i];
    return NULL;
}
