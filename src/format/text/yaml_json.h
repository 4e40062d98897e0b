/* yaml_json.h - a YAML tree as a JSON tree. */
#ifndef AF_YAML_JSON_H
#define AF_YAML_JSON_H

#include "format/text/yaml_tree.h"

#include <jansson.h>

/* A new tree, with YAML's kinds of plain scalars; NULL when memory is short. */
json_t *af_yaml_json(const af_yaml *n);
#endif
