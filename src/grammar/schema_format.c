/* schema_format.c - the formats of strings, as patterns. */
#include "grammar/schema.h"

/* Days that exist, years from 1: what every reader of dates takes. */
#define YEAR "(?:[1-9]\\d{3}|0[1-9]\\d\\d|00[1-9]\\d|000[1-9])"
#define LEAP "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|"  \
    "30)|02-(?:0[1-9]|1\\d|2[0-8]))|" LEAP "-02-29)"
#define HOUR "(?:[01]\\d|2[0-3])"
#define TIME HOUR ":[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-]" HOUR ":[0-5]\\d)"
#define HEX4 "[0-9a-fA-F]{4}"
#define UUID(version)                                                                              \
    "^" HEX4 HEX4 "-" HEX4 "-" version "[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-" HEX4 HEX4 HEX4 "$"
#define BYTE  "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4  "(?:" BYTE "\\.){3}" BYTE
#define IPV6  "(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}"
#define LABEL "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^" HEX4 HEX4 "-" HEX4 "-" HEX4 "-" HEX4 "-" HEX4 HEX4 HEX4 "$"},
    {"uuid1", UUID("1")}, /* these as pydantic names them */
    {"uuid3", UUID("3")},
    {"uuid4", UUID("4")},
    {"uuid5", UUID("5")},
    {"uuid6", UUID("6")},
    {"uuid7", UUID("7")},
    {"uuid8", UUID("8")},
    {"ipvanyaddress", "^(?:" IPV4 "|" IPV6 ")$"},
    {"ipv4", "^" IPV4 "$"},
    {"ipv6", "^" IPV6 "$"},
    {"hostname", "^" LABEL "(?:\\." LABEL "){0,4}$"},
    {"email",
     "^[a-zA-Z0-9](?:[a-zA-Z0-9_+-]|\\.[a-zA-Z0-9]){0,40}@" LABEL "(?:\\." LABEL "){1,3}$"},
    {"uri", "^https?://" LABEL "(?:\\." LABEL "){0,4}(?:/[a-zA-Z0-9_.~/-]*)?$"},
    {"duration", "^P(?:\\d{1,4}D(?:T\\d{1,4}H)?|\\d{1,4}W|T\\d{1,4}[HMS])$"},
};

const char *af_schema_format(const char *name, bool *kept)
{
    static const char *const others[] = {
        "regex",        "iri",          "iri-reference",         "uri-reference",
        "uri-template", "json-pointer", "relative-json-pointer", "idn-email",
        "idn-hostname"};
    *kept = true;
    for (size_t i = 0; i < AF_LEN(others); i++)
        *kept &= strcmp(others[i], name) != 0;
    for (size_t i = 0; i < AF_LEN(formats); i++)
        if (strcmp(formats[i].name, name) == 0)
            return formats[i].pattern;
    return NULL;
}
