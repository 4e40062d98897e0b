/* arch_place.c - see arch_place.h. */
#include "model/arch/arch_place.h"

enum { ALONE, CAUSAL, LANGUAGE, BARE, TEXT, TWICE, THINKER, THINKER_CAUSAL, TEXT_CAUSAL, LLM };

/* Folders have the names of memory, or those of older versions of transformers. */
static const af_arch_place places[] = {
    [ALONE] = {"", true, ""},
    [CAUSAL] = {"language_model.", true, "language_model."}, /* a whole causal model */
    [LANGUAGE] = {"model.language_model.", false, ""},
    [BARE] = {"", false, ""},
    [TEXT] = {"model.text_model.", false, ""},
    [TWICE] = {"model.language_model.", true, ""},
    [THINKER] = {"thinker.model.language_model.", false, "thinker."},
    [THINKER_CAUSAL] = {"thinker.", true, "thinker."},
    [TEXT_CAUSAL] = {"text_model.", true, "text_model."},
    [LLM] = {"llm.", true, "llm."},
};

const af_arch_place *af_arch_place_at(int i) { return i < (int)AF_LEN(places) ? &places[i] : NULL; }

const af_arch_place *af_arch_place_in(const char *whole)
{
    static const struct {
        const char *whole;
        int place;
    } others[] = {{"llama4", CAUSAL},
                  {"nemotron_h_omni", CAUSAL},
                  {"blip-2", CAUSAL},
                  {"instructblip", CAUSAL},
                  {"instructblipvideo", CAUSAL},
                  {"internvl_chat", CAUSAL}, /* code in repositories */
                  {"kimi_vl", CAUSAL},
                  {"minicpmv", LLM},
                  {"minicpmo", LLM},
                  {"dots_ocr", ALONE},
                  {"phi3_v", ALONE},
                  {"deepseek_vl_v2", ALONE}, /* DeepSeek-OCR */
                  {"ovis", LLM},
                  {"idefics2", TEXT},
                  {"idefics3", TEXT},
                  {"smolvlm", TEXT},
                  {"emu3", TEXT},
                  {"granite_docling", TEXT},
                  {"qwen2_5_omni", THINKER},
                  {"qwen3_omni_moe", THINKER},
                  {"phi4_multimodal", ALONE}};
    for (size_t i = 0; i < AF_LEN(others); i++)
        if (strcmp(others[i].whole, whole) == 0)
            return &places[others[i].place];
    return &places[LANGUAGE];
}

const char *af_arch_stem(const af_arch *a)
{
    return !a->stem || strncmp(a->stem, "model.", 6) == 0 ? "model." : a->stem;
}
