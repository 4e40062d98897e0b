/* memory_fit.h - the memory modes of a step from the fastest to the smallest, and the first of them
 * that fits. */
#ifndef AF_MEMORY_FIT_H
#define AF_MEMORY_FIT_H

#include "train/step/step_graph.h"

/* Every mode the device has, whatever the run file allows; partial ones are between them. */
enum { AF_MEMORY_MODES_MAX = 10, AF_MEMORY_MODE_NAME = 48 };
int af_memory_modes(const af_step_graph *s, af_memory_mode out[AF_MEMORY_MODES_MAX]);
/* 4 or 8 when weights can stay in that many bits, else 0. */
int af_memory_packed_bits(const af_step_graph *s);
/* "block", "block+4bit", "wide, 9 of 30 blocks". */
const char *af_memory_mode_name(const af_step_graph *s, af_memory_mode m,
                                char buf[AF_MEMORY_MODE_NAME]);
bool af_memory_mode_same(af_memory_mode a, af_memory_mode b);
/* Records and plans one: s->memory_mode, s->plan. */
AF_CHECKED af_status af_memory_plan(af_step_graph *s, af_memory_mode m, af_error *err);
/* When the smallest mode is planned: plans that the last block keeps what is costly to make again,
 * where that takes at most `free_bytes` and little more than the smallest plan. */
AF_CHECKED af_status af_memory_keep_last(af_step_graph *s, uint64_t free_bytes, af_error *err);
/* Plans those the run allows in order until one fits `free_bytes`: the first that does, else the
 * smallest. */
AF_CHECKED af_status af_memory_choose(af_step_graph *s, uint64_t free_bytes, bool *fits,
                                      af_error *err);
/* The same for a run: when nothing fits, the error names settings that would. */
AF_CHECKED af_status af_memory_fit(af_step_graph *s, uint64_t free_bytes, af_error *err);

/* On the CPU, memory in addition to the plan: the host's copy of the adapter, and the answers to
 * the prompts. Checkpoints are written from the graph's own memory. */
uint64_t af_memory_copies(const af_step_graph *s);
/* Mapped weights that stay resident: those returned once they are packed do not. */
uint64_t af_plan_in_place(const af_plan_info *p);
/* Counts what the process holds besides the plan, before the plan's memory is taken. */
void af_memory_count_program(af_step_graph *s);
/* What the whole process is expected to hold on the CPU with this plan. */
uint64_t af_memory_resident(const af_step_graph *s, const af_plan_info *p);
#endif
