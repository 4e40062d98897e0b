/* server_state.h - an open server, for the files that implement afinar/serve.h. */
#ifndef AF_SERVER_STATE_H
#define AF_SERVER_STATE_H

#include "serve/api/api.h"

struct af_server {
    af_api api;
    af_model *model;
    af_template *template;              /* in place of the model's, or NULL */
    char *names[AF_SERVE_LIST_MAX + 2]; /* at the start */
    char url[320];
};
#endif
