/* turn_template.c - the table of turn templates. The texts are part of the formats. */
#include "format/chat/turn_template.h"

#include "base/word.h"

#define BOS   "\001"
#define EOS   "\002"
#define TEXT  "\003"
#define APART "\004"

#define IM_SYSTEM "<|im_start|>system\n" TEXT "<|im_end|>\n"
#define IM_USER   "<|im_start|>user\n" TEXT "<|im_end|>\n<|im_start|>assistant\n"
#define IM_ANSWER TEXT "<|im_end|>\n"
#define IM_TOOL   "<|im_start|>tool\n" TEXT "<|im_end|>\n<|im_start|>assistant\n"
#define IM_RESULT                                                                                  \
    "<|im_start|>user\n<tool_response>\n" TEXT                                                     \
    "\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
#define GEMMA_USER   "<start_of_turn>user\n" TEXT "<end_of_turn>\n<start_of_turn>model\n"
#define GEMMA_ANSWER TEXT "<end_of_turn>\n"
#define GEMMA_TOOL   "<start_of_turn>tool\n" TEXT "<end_of_turn>\n<start_of_turn>model\n"
#define GLM_SYSTEM   "<|system|>\n" TEXT
#define GLM_USER     "<|user|>\n" TEXT "<|assistant|>"
#define GLM_TOOL     "<|observation|>\n" TEXT "<|assistant|>"
#define HELPFUL      "You are a helpful assistant."
#define CURIOUS                                                                                    \
    "A chat between a curious user and an artificial intelligence assistant. The "                 \
    "assistant gives helpful, detailed, and polite answers to the user's questions."
#define PHI_SYSTEM "<|system|>\n" TEXT "<|end|>\n"

static const af_turn_template table[] = {
    {"alpaca", .system = TEXT, .user = "### Instruction:\n" TEXT "\n\n### Response:\n",
     .answer = TEXT EOS "\n\n",
     .default_system = "Below is an instruction that describes a task. Write a response that "
                       "appropriately completes the request.\n\n",
     .flags = AF_TURNS_REPLACES},
    {"bailing", .system = "<role>SYSTEM</role>" TEXT,
     .user = "<role>HUMAN</role>" TEXT "<role>ASSISTANT</role>", .answer = TEXT,
     .tool = "<role>OBSERVATION</role>" TEXT "<role>ASSISTANT</role>", .flags = AF_TURNS_ENDS},
    {"bailing_v2", .system = "<role>SYSTEM</role>" TEXT "<|role_end|>",
     .user = "<role>HUMAN</role>" TEXT "<|role_end|><role>ASSISTANT</role>",
     .answer = TEXT "<|role_end|>",
     .tool = "<role>OBSERVATION</role>\n<tool_response>\n" TEXT
             "\n</tool_response><|role_end|><role>ASSISTANT</role>",
     .flags = AF_TURNS_ENDS},
    {"breeze", .prefix = BOS, .system = TEXT, .user = "[INST] " TEXT " [/INST] ", .answer = TEXT,
     .flags = AF_TURNS_ENDS},
    {"chatglm3", .prefix = "[gMASK]" APART "sop", .system = "<|system|>" APART "\n" APART TEXT,
     .user = "<|user|>" APART "\n" APART TEXT APART "<|assistant|>", .answer = "\n" APART TEXT,
     .tool = "<|observation|>" APART "\n" APART TEXT APART "<|assistant|>", .flags = AF_TURNS_ENDS},
    {"chatml", .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER, .tool = IM_TOOL,
     .stop = "<|im_end|>", .flags = AF_TURNS_STOPS | AF_TURNS_REPLACES},
    {"chatml_de", .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER, .tool = IM_TOOL,
     .default_system = "Du bist ein freundlicher und hilfsbereiter KI-Assistent.",
     .stop = "<|im_end|>", .flags = AF_TURNS_STOPS | AF_TURNS_REPLACES},
    {"cohere", .prefix = BOS,
     .system = "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>" TEXT "<|END_OF_TURN_TOKEN|>",
     .user = "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>" TEXT
             "<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
     .answer = TEXT EOS},
    {"cpm4 falcon_h1", .prefix = BOS, .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER,
     .tool = IM_TOOL},
    {"deepseek", .prefix = BOS, .system = TEXT "\n\n",
     .user = "User: " TEXT "\n\nAssistant:", .answer = TEXT EOS},
    {"deepseek3", .prefix = BOS, .system = TEXT, .user = "<｜User｜>" TEXT "<｜Assistant｜>",
     .answer = TEXT EOS},
    {"deepseekr1", .prefix = BOS, .system = TEXT, .user = "<｜User｜>" TEXT "<｜Assistant｜>",
     .answer = TEXT EOS, .flags = AF_TURNS_THINKS},
    {"hy3", .prefix = BOS, .system = TEXT, .user = "<｜hy_User｜>" TEXT "<｜hy_Assistant｜>",
     .answer = TEXT "<｜hy_eos｜>", .stop = "<｜hy_eos｜>", .think = {"<think>", "</think>"},
     .flags = AF_TURNS_THINKS | AF_TURNS_STOPS},
    {"deepseekcoder", .prefix = BOS, .system = TEXT,
     .user = "### Instruction:\n" TEXT "\n### Response:", .answer = "\n" TEXT "\n<|EOT|>\n",
     .default_system =
         "You are an AI programming assistant, utilizing the DeepSeek Coder model, "
         "developed by DeepSeek Company, and you only answer questions related to "
         "computer science. For politically sensitive questions, security and privacy "
         "issues, and other non-computer science questions, you will refuse to answer.\n"},
    {"default", .system = "System: " TEXT EOS "\n", .user = "Human: " TEXT EOS "\nAssistant:",
     .answer = TEXT EOS "\n", .flags = AF_TURNS_REPLACES},
    {"dots_ocr", .system = "<|system|>" TEXT "<|endofsystem|>\n",
     .user = "<|user|>" TEXT "<|endofuser|><|assistant|>", .answer = TEXT "<|endofassistant|>",
     .flags = AF_TURNS_ENDS},
    {"empty", .system = TEXT, .user = TEXT, .answer = TEXT},
    {"ernie", .system = "<|im_start|>system\n" TEXT "<|im_end|>\n\n",
     .user = "<|im_start|>user\n" TEXT "<|im_end|>\n\n<|im_start|>assistant\n",
     .answer = TEXT "<|im_end|>\n\n",
     .tool = "<|im_start|>tool\n" TEXT "<|im_end|>\n\n<|im_start|>assistant\n",
     .default_system = "<global_setting>\nthink_mode=True\n</global_setting>"},
    {"ernie_nothink", .prefix = "<|begin_of_sentence|>", .system = TEXT "\n",
     .user = "User: " TEXT "\nAssistant: ", .answer = TEXT "<|end_of_sentence|>"},
    {"ernie_vl", .system = TEXT "\n", .user = "User: " TEXT,
     .answer = "\nAssistant: " TEXT "<|end_of_sentence|>", .stop = "<|end_of_sentence|>",
     .flags = AF_TURNS_THINKS | AF_TURNS_STOPS | AF_TURNS_REPLACES},
    {"exaone", .system = "[|system|]" TEXT "[|endofturn|]\n",
     .user = "[|user|]" TEXT "\n[|assistant|]", .answer = TEXT EOS "\n"},
    {"falcon", .system = TEXT, .user = "User: " TEXT "\nFalcon:", .answer = TEXT "\n",
     .flags = AF_TURNS_ENDS},
    {"fewshot", .system = TEXT, .user = TEXT, .answer = TEXT "\n\n",
     .flags = AF_TURNS_ENDS | AF_TURNS_REPLACES},
    {"gemma gemma3 gemma3n", .prefix = BOS, .system = TEXT "\n\n", .user = GEMMA_USER,
     .answer = GEMMA_ANSWER, .tool = GEMMA_TOOL, .stop = "<end_of_turn>",
     .flags = AF_TURNS_FOLDS | AF_TURNS_STOPS},
    {"gemma2", .prefix = BOS, .system = TEXT "\n\n", .user = GEMMA_USER, .answer = GEMMA_ANSWER,
     .tool = GEMMA_TOOL, .flags = AF_TURNS_FOLDS | AF_TURNS_ENDS},
    {"gemma4 gemma4n", .prefix = BOS, .system = "<|turn>system\n<|think|>" TEXT "<turn|>\n",
     .user = "<|turn>user\n" TEXT "<turn|>\n<|turn>model\n", .answer = TEXT "<turn|>\n",
     .tool = "<|turn>tool\n" TEXT "<turn|>\n<|turn>model\n", .default_system = HELPFUL,
     .stop = "<turn|>", .think = {"<|channel>thought\n", "<channel|>"},
     .flags = AF_TURNS_THINKS | AF_TURNS_STOPS},
    {"glm4 glm_ocr", .prefix = "[gMASK]<sop>", .system = GLM_SYSTEM, .user = GLM_USER,
     .answer = "\n" TEXT, .tool = GLM_TOOL, .flags = AF_TURNS_ENDS},
    {"glm4_moe glm4v glm4_5v glmz1", .prefix = "[gMASK]<sop>", .system = GLM_SYSTEM,
     .user = GLM_USER, .answer = "\n" TEXT, .tool = GLM_TOOL,
     .flags = AF_TURNS_THINKS | AF_TURNS_ENDS},
    {"glm4_7", .prefix = "[gMASK]<sop>", .system = GLM_SYSTEM, .user = GLM_USER,
     .answer = "\n" TEXT, .tool = GLM_TOOL, .think = {"<think>", "</think>"},
     .flags = AF_TURNS_THINKS | AF_TURNS_CLOSES | AF_TURNS_ENDS},
    {"gpt_oss", .system = "<|start|>system<|message|>" TEXT "<|end|>",
     .user = "<|start|>user<|message|>" TEXT "<|end|><|start|>assistant", .answer = TEXT,
     .default_system = "You are ChatGPT, a large language model trained by OpenAI.",
     .think = {"<|channel|>analysis<|message|>",
               "<|end|><|start|>assistant<|channel|>final<|message|>"},
     .flags = AF_TURNS_THINKS | AF_TURNS_ENDS},
    {"granite3", .system = "<|start_of_role|>system<|end_of_role|>" TEXT "<|end_of_text|>\n",
     .user = "<|start_of_role|>user<|end_of_role|>" TEXT
             "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
     .answer = TEXT "<|end_of_text|>\n"},
    {"granite3_vision", .system = "<|system|>\n" TEXT "\n",
     .user = "<|user|>\n" TEXT "\n<|assistant|>\n", .answer = TEXT EOS, .default_system = CURIOUS},
    {"granite4", .system = "<|start_of_role|>system<|end_of_role|>" TEXT "<|end_of_text|>\n",
     .user = "<|start_of_role|>user<|end_of_role|>" TEXT
             "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
     .answer = TEXT "<|end_of_text|>\n",
     .tool = "<|start_of_role|>tool<|end_of_role|>" TEXT
             "<|end_of_text|>\n<|start_of_role|>assistant\n",
     .default_system = "You are Granite, developed by IBM. You are a helpful AI assistant."},
    {"index", .system = "<unk>" TEXT, .user = "reserved_0" TEXT "reserved_1", .answer = TEXT,
     .flags = AF_TURNS_ENDS},
    {"hunyuan", .prefix = "<|startoftext|>", .system = TEXT "<|extra_4|>",
     .user = TEXT "<|extra_0|>", .answer = TEXT "<|eos|>"},
    {"hunyuan_small", .prefix = "<｜hy_begin▁of▁sentence｜>",
     .system = TEXT "<｜hy_place▁holder▁no▁3｜>",
     .user = "<｜hy_User｜>" TEXT "<｜hy_place▁holder▁no▁8｜>",
     .answer = TEXT "<｜hy_place▁holder▁no▁2｜>"},
    {"intern2", .prefix = BOS, .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER,
     .default_system =
         "You are an AI assistant whose name is InternLM (书生·浦语).\n- InternLM "
         "(书生·浦语) is a conversational language model that is developed by "
         "Shanghai AI Laboratory (上海人工智能实验室). It is designed to be "
         "helpful, honest, and harmless.\n- InternLM (书生·浦语) can understand and "
         "communicate fluently in the language chosen by the user such as English and 中"
         "文."},
    {"intern_vl", .prefix = BOS, .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER,
     .default_system = "你是书生·万象，英文名是InternVL，是由上海人工"
                       "智能实验室、清华大学及多家合作"
                       "单位联合开发的多模态大语言模型。"},
    {"intern_s1", .prefix = BOS, .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER},
    {"keye_vl qwen3 qwen3_omni qwen3_vl qwen3_5 qwen3_6", .system = IM_SYSTEM, .user = IM_USER,
     .answer = IM_ANSWER, .tool = IM_RESULT, .stop = "<|im_end|>",
     .flags = AF_TURNS_THINKS | AF_TURNS_STOPS},
    {"kimi_vl", .system = "<|im_system|>system<|im_middle|>" TEXT "<|im_end|>",
     .user = "<|im_user|>user<|im_middle|>" TEXT "<|im_end|><|im_assistant|>assistant<|im_middle|>",
     .answer = TEXT "<|im_end|>", .default_system = "You are a helpful assistant",
     .think = {"◁think▷", "◁/think▷"}, .flags = AF_TURNS_THINKS},
    {"lfm2", .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER,
     .tool = "<|im_start|>tool\n<|tool_response_start|>" TEXT
             "<|tool_response_end|><|im_end|>\n<|im_start|>assistant\n",
     .default_system = "You are a helpful AI assistant.", .stop = "<|im_end|>",
     .flags = AF_TURNS_STOPS},
    {"lfm2_vl", .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER,
     .tool = "<|im_start|>tool\n<|tool_response_start|>" TEXT
             "<|tool_response_end|><|im_end|>\n<|im_start|>assistant\n",
     .default_system = "You are a helpful multimodal assistant by Liquid AI.", .stop = "<|im_end|>",
     .flags = AF_TURNS_STOPS},
    {"llama2", .system = "<<SYS>>\n" TEXT "\n<</SYS>>\n\n", .user = BOS "[INST] " TEXT " [/INST]",
     .answer = TEXT EOS, .flags = AF_TURNS_FOLDS},
    {"llama2_zh", .system = "<<SYS>>\n" TEXT "\n<</SYS>>\n\n",
     .user = BOS "[INST] " TEXT " [/INST]", .answer = TEXT EOS,
     .default_system = "You are a helpful assistant. 你是一个乐于助人的助手。",
     .flags = AF_TURNS_FOLDS},
    {"llama3 mllama llava_next_llama3", .prefix = BOS,
     .system = "<|start_header_id|>system<|end_header_id|>\n\n" TEXT "<|eot_id|>",
     .user = "<|start_header_id|>user<|end_header_id|>\n\n" TEXT
             "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .answer = TEXT "<|eot_id|>",
     .tool = "<|start_header_id|>ipython<|end_header_id|>\n\n" TEXT
             "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .stop = "<|eot_id|>", .flags = AF_TURNS_STOPS},
    {"llama4", .prefix = BOS, .system = "<|header_start|>system<|header_end|>\n\n" TEXT "<|eot|>",
     .user = "<|header_start|>user<|header_end|>\n\n" TEXT
             "<|eot|><|header_start|>assistant<|header_end|>\n\n",
     .answer = TEXT "<|eot|>",
     .tool = "<|header_start|>ipython<|header_end|>\n\n" TEXT
             "<|eot|><|header_start|>assistant<|header_end|>\n\n",
     .stop = "<|eot|>", .flags = AF_TURNS_STOPS},
    {"moonlight", .system = "<|im_system|>system<|im_middle|>" TEXT "<|im_end|>",
     .user = "<|im_user|>user<|im_middle|>" TEXT "<|im_end|><|im_assistant|>assistant<|im_middle|>",
     .answer = TEXT "<|im_end|>",
     .default_system = "You are a helpful assistant provided by Moonshot-AI.", .stop = "<|im_end|>",
     .flags = AF_TURNS_STOPS},
    {"llava llava_next llava_next_video video_llava", .system = TEXT,
     .user = "USER: " TEXT " ASSISTANT:", .answer = TEXT EOS, .default_system = CURIOUS},
    {"llava_next_mistral llava_next_video_mistral mistral", .prefix = BOS, .system = TEXT "\n\n",
     .user = "[INST] " TEXT "[/INST]", .answer = " " TEXT EOS,
     .tool = "[TOOL_RESULTS] {\"content\": " TEXT "}[/TOOL_RESULTS]", .flags = AF_TURNS_FOLDS},
    {"llava_next_qwen qwen2_omni qwen2_vl", .system = IM_SYSTEM, .user = IM_USER,
     .answer = IM_ANSWER, .tool = IM_RESULT, .default_system = HELPFUL, .stop = "<|im_end|>",
     .flags = AF_TURNS_STOPS},
    {"llava_next_yi llava_next_video_yi smollm yi", .system = IM_SYSTEM, .user = IM_USER,
     .answer = IM_ANSWER},
    {"mimo", .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER, .tool = IM_RESULT,
     .default_system = HELPFUL, .stop = "<|im_end|>", .flags = AF_TURNS_THINKS | AF_TURNS_STOPS},
    {"mimo_v2", .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER, .tool = IM_RESULT,
     .default_system = "You are MiMo, a helpful AI assistant engineered by Xiaomi.",
     .stop = "<|im_end|>", .think = {"<think>", "</think>"},
     .flags = AF_TURNS_THINKS | AF_TURNS_STOPS},
    {"mimo_vl", .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER, .tool = IM_RESULT,
     .default_system = "You are MiMo, an AI assistant developed by Xiaomi.", .stop = "<|im_end|>",
     .flags = AF_TURNS_THINKS | AF_TURNS_STOPS},
    {"minicpm_v minicpm_v_4_6", .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER,
     .default_system = HELPFUL},
    {"minicpm_o", .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER,
     .default_system =
         "You are a helpful assistant. You can accept audio and text input and output "
         "voice and text."},
    {"minimax1",
     .system = "<beginning_of_sentence>system ai_setting=assistant\n" TEXT "<end_of_sentence>\n",
     .user = "<beginning_of_sentence>user name=user\n" TEXT
             "<end_of_sentence>\n<beginning_of_sentence>ai name=assistant\n",
     .answer = TEXT "<end_of_sentence>\n",
     .tool = "<beginning_of_sentence>tool name=tools\n" TEXT
             "<end_of_sentence>\n<beginning_of_sentence>ai name=assistant\n",
     .default_system = HELPFUL},
    {"minimax2", .system = "]~!b[]~b]system\n" TEXT "[e~[\n",
     .user = "]~b]user\n" TEXT "[e~[\n]~b]ai\n", .answer = TEXT "[e~[\n",
     .tool = "]~b]tool\n<response>" TEXT "</response>[e~[\n]~b]ai\n",
     .default_system =
         "You are a helpful assistant. Your name is MiniMax-M2.1 and is built by MiniMax.",
     .flags = AF_TURNS_THINKS},
    {"ministral ministral3 pixtral", .prefix = BOS, .system = TEXT "\n\n",
     .user = "[INST]" TEXT "[/INST]", .answer = TEXT EOS,
     .tool = "[TOOL_RESULTS]{\"content\": " TEXT "}[/TOOL_RESULTS]", .flags = AF_TURNS_FOLDS},
    {"mistral_small", .prefix = BOS, .system = "[SYSTEM_PROMPT]" TEXT "[/SYSTEM_PROMPT]",
     .user = "[INST]" TEXT "[/INST]", .answer = TEXT EOS,
     .tool = "[TOOL_RESULTS]{\"content\": " TEXT "}[/TOOL_RESULTS]"},
    {"olmo", .prefix = EOS, .system = TEXT, .user = "<|user|>\n" TEXT "<|assistant|>\n",
     .answer = TEXT EOS},
    {"openchat", .prefix = BOS, .system = TEXT,
     .user = "GPT4 Correct User: " TEXT EOS "GPT4 Correct Assistant:", .answer = TEXT EOS},
    {"openchat-3.6", .prefix = BOS, .system = TEXT,
     .user = "<|start_header_id|>GPT4 Correct User<|end_header_id|>\n\n" TEXT
             "<|eot_id|><|start_header_id|>GPT4 Correct Assistant<|end_header_id|>\n\n",
     .answer = TEXT EOS},
    {"opencoder", .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER, .tool = IM_TOOL,
     .default_system = "You are OpenCoder, created by OpenCoder Team."},
    {"paligemma", .prefix = BOS, .system = TEXT, .user = TEXT "\n", .answer = TEXT EOS,
     .flags = AF_TURNS_FOLDS},
    {"paligemma_chat", .prefix = BOS, .system = TEXT, .user = GEMMA_USER, .answer = GEMMA_ANSWER,
     .tool = GEMMA_TOOL, .stop = "<end_of_turn>", .flags = AF_TURNS_FOLDS | AF_TURNS_STOPS},
    {"phi phi_small", .system = PHI_SYSTEM, .user = "<|user|>\n" TEXT "<|end|>\n<|assistant|>\n",
     .answer = TEXT "<|end|>\n", .stop = "<|end|>", .flags = AF_TURNS_STOPS},
    {"phi4", .system = "<|im_start|>system<|im_sep|>" TEXT "<|im_end|>",
     .user = "<|im_start|>user<|im_sep|>" TEXT "<|im_end|><|im_start|>assistant<|im_sep|>",
     .answer = TEXT "<|im_end|>", .stop = "<|im_end|>", .flags = AF_TURNS_STOPS},
    {"phi4_mini", .system = "<|system|>" TEXT "<|end|>",
     .user = "<|user|>" TEXT "<|end|><|assistant|>", .answer = TEXT "<|end|>", .stop = "<|end|>",
     .flags = AF_TURNS_STOPS},
    {"qwen", .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER, .tool = IM_RESULT,
     .default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
     .stop = "<|im_end|>", .flags = AF_TURNS_STOPS},
    {"qwen3_nothink qwen3_omni_nothink qwen3_vl_nothink qwen3_5_nothink", .system = IM_SYSTEM,
     .user = IM_USER, .answer = IM_ANSWER, .tool = IM_RESULT, .stop = "<|im_end|>",
     .flags = AF_TURNS_STOPS},
    {"qwen2_audio", .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER,
     .default_system = HELPFUL, .stop = "<|im_end|>", .flags = AF_TURNS_STOPS},
    {"sailor", .system = IM_SYSTEM,
     .user = "<|im_start|>question\n" TEXT "<|im_end|>\n<|im_start|>answer\n", .answer = IM_ANSWER,
     .default_system =
         "You are an AI assistant named Sailor created by Sea AI Lab. Your answer should "
         "be friendly, unbiased, faithful, informative and detailed."},
    {"seed_coder", .system = BOS "system\n" TEXT EOS,
     .user = BOS "user\n" TEXT EOS BOS "assistant\n", .answer = TEXT EOS,
     .default_system =
         "You are an AI programming assistant, utilizing the Seed-Coder model, developed "
         "by ByteDance Seed, and you only answer questions related to computer science. "
         "For politically sensitive questions, security and privacy issues, and other "
         "non-computer science questions, you will refuse to answer.\n\n"},
    {"seed_oss", .system = BOS "system\n" TEXT EOS, .user = BOS "user\n" TEXT EOS BOS "assistant\n",
     .answer = TEXT EOS, .think = {"<seed:think>", "</seed:think>"}, .flags = AF_TURNS_THINKS},
    {"smollm2", .system = IM_SYSTEM, .user = IM_USER, .answer = IM_ANSWER,
     .default_system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face."},
    {"solar", .system = "### System:\n" TEXT "\n\n",
     .user = "### User:\n" TEXT "\n\n### Assistant:\n", .answer = TEXT, .flags = AF_TURNS_ENDS},
    {"starchat", .system = PHI_SYSTEM, .user = "<|user|>\n" TEXT "<|end|>\n<|assistant|>",
     .answer = TEXT "<|end|>\n"},
    {"telechat2", .system = "<_system>" TEXT, .user = "<_user>" TEXT "<_bot>", .answer = TEXT EOS,
     .default_system = "你是中国电信星辰语义大模型，英文名是TeleChat，"
                       "你是由中电信人工智能科技有限"
                       "公司和中国电信人工智能研究院（TeleAI）研发的人"
                       "工智能助手。"},
    {"vicuna", .system = TEXT, .user = "USER: " TEXT " ASSISTANT:", .answer = TEXT EOS,
     .default_system = CURIOUS, .flags = AF_TURNS_REPLACES},
    {"xuanyuan", .system = TEXT, .user = "Human: " TEXT " Assistant:", .answer = TEXT EOS,
     .default_system = "以下是用户和人工智能助手之间的对话。用户以Hum"
                       "an开头，人"
                       "工智能助手以Assistant开头，会对人类提出的问题给"
                       "出有帮助"
                       "、高质量、详细和礼貌的回答，并且总是拒绝参与"
                       "与不道德"
                       "、不安全、有争议、政治敏感等相关的话题、问题"
                       "和指示。\n"},
    {"yi_vl", .system = TEXT, .user = "### Human: " TEXT "\n### Assistant:", .answer = TEXT "\n",
     .default_system =
         "This is a chat between an inquisitive human and an AI assistant. Assume the "
         "role of the AI assistant. Read all the images carefully, and respond to the "
         "human's questions with informative, helpful, detailed and polite answers. 这是"
         "一个好奇的人类和一个人工智能助手之间的对话。假设你扮"
         "演这个AI助手的角色。仔细阅读所有的图像，并对人类的问题"
         "做出信息丰富、有帮助、详细的和礼貌的回答。\n\n",
     .flags = AF_TURNS_ENDS},
    {"youtu", .prefix = BOS, .system = TEXT, .user = "<|User|>" TEXT "<|Assistant|>",
     .answer = TEXT "<|end_of_text|>",
     .tool = "<tool_response>\n" TEXT "\n</tool_response><|Assistant|>", .stop = "<|end_of_text|>",
     .flags = AF_TURNS_THINKS | AF_TURNS_STOPS},
    {"youtu_vl", .system = "<|begin_of_text|>system\n" TEXT "<|end_of_text|>\n",
     .user = "<|begin_of_text|>user\n" TEXT "<|end_of_text|>\n<|begin_of_text|>assistant\n",
     .answer = TEXT "<|end_of_text|>\n", .default_system = HELPFUL},
    {"yuan", .system = TEXT, .user = TEXT APART "<sep>", .answer = TEXT "<eod>\n"},
    {"zephyr", .system = "<|system|>\n" TEXT EOS, .user = "<|user|>\n" TEXT EOS "<|assistant|>\n",
     .answer = TEXT EOS, .default_system = "You are Zephyr, a helpful assistant."},
    {"aeva", .prefix = "[gMASK]<sop>", .system = GLM_SYSTEM, .user = GLM_USER, .answer = "\n" TEXT,
     .tool = GLM_TOOL,
     .default_system =
         "You are an AI assistant named Aeva created by Zongzhi Lou. Your answer should "
         "be friendly, unbiased, faithful, informative and detailed.",
     .think = {"<think>", "</think>"}, .flags = AF_TURNS_THINKS | AF_TURNS_CLOSES | AF_TURNS_ENDS},
};

const af_turn_template *af_turn_template_find(const char *name)
{
    for (size_t i = 0; i < AF_LEN(table); i++)
        if (af_word_listed(name, table[i].names))
            return &table[i];
    return NULL;
}

const char *af_turn_template_think(const af_turn_template *t, int end)
{
    return t->think[0] ? t->think[end] : end ? "\n</think>\n\n" : "<think>\n";
}
