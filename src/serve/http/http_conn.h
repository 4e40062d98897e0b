/* http_conn.h - a connection and its requests, for the files that implement http_server.h. */
#ifndef AF_HTTP_CONN_H
#define AF_HTTP_CONN_H

#include "base/buf.h"
#include "serve/http/http_server.h"

#include <pthread.h>

enum {
    AF_HTTP_OUT_MAX = 64 << 20, /* bytes that wait for a client that does not read */
    AF_HTTP_BODIES = 64,        /* largest bodies that fit into memory at the same time; beyond */
    AF_HTTP_SMALL_BODY = 64 << 10, /* that, only bodies up to this size are read */
    AF_HTTP_READ_STEP = 16 << 10,
    AF_HTTP_SPARE = 16, /* connections that need no memory, to turn others away */
};

typedef enum af_conn_phase {
    AF_CONN_HEAD,   /* waits for a request, or reads its head */
    AF_CONN_BODY,   /* reads its body */
    AF_CONN_ANSWER, /* somebody works on the answer, or it is being sent */
    AF_CONN_LINGER, /* the answer is sent; what still comes is dropped until the client closes */
    AF_CONN_CLOSED, /* the socket is closed; freed at the end of the turn */
} af_conn_phase;

/* Used by the server's thread alone. */
typedef struct af_httpd_conn {
    struct af_httpd *http;
    int fd;
    af_conn_phase phase;
    af_buf in;  /* received, not used yet */
    af_buf out; /* to be sent */
    uint64_t sent;
    uint64_t chunk_left;    /* of a chunked body: bytes of the chunk; 0: a size line follows */
    uint64_t trailer_bytes; /* of fields after the last chunk, so far */
    bool chunk_end;         /* the CRLF after a chunk follows */
    bool chunk_last;        /* the last one is in; trailers follow */
    double since;           /* the phase (or its first byte) began */
    double moved;           /* bytes were last received or sent */
    double deadline;        /* of a body */
    uint32_t events;        /* that epoll waits for */
    char address[64];       /* of this side */
    af_httpd_call *call;
    struct af_httpd_conn *next, *prev;
} af_httpd_conn;

struct af_httpd_call {
    af_httpd *http;
    atomic_int refs;
    atomic_bool closed;
    af_httpd_conn *conn; /* of the server's thread alone; NULL when the connection is gone */
    char *head_text;
    af_request_head head;
    af_buf body;
    double begun, sent;   /* its head was complete; the last bytes of a stream */
    bool close_after;     /* the connection ends with this answer */
    pthread_mutex_t lock; /* guards what follows */
    af_buf headers, out;
    int status; /* 0: not answered */
    bool chunked, bodiless, sending, ended, logged;
    bool dirty; /* in the server's list of calls with new output */
    struct af_httpd_call *next_dirty;
};

struct af_httpd {
    af_httpd_opts o;
    int listener, epoll, wake, port;
    pthread_t thread;
    bool started;
    atomic_int connections;
    atomic_bool draining, quit, idle; /* idle: draining, and nothing is left */
    atomic_uint_least64_t body_bytes; /* of all requests */
    atomic_uint_least64_t answers[AF_HTTP_STATUS_MAX];
    af_httpd_conn *conns;
    af_httpd_conn spare[AF_HTTP_SPARE]; /* unused: without `http` */
    int conns_max;
    double accept_after;  /* the system had no descriptor: try again then */
    pthread_mutex_t lock; /* guards the list of calls with new output */
    af_httpd_call *dirty;
};

/* http_call.c */
/* The server's thread looks at its list of new output, and whether it should end, now. */
void af_httpd_wake(af_httpd *h);
af_httpd_call *af_httpd_call_new(af_httpd_conn *c);
/* Moves new output of the call to its connection. Returns true when the answer is complete. */
bool af_httpd_call_flush(af_httpd_call *call);
/* The answer to something this layer refuses; the connection ends with it. */
void af_httpd_refuse(af_httpd_call *call, int status, const char *why);

/* http_conn.c */
AF_CHECKED af_status af_httpd_conn_new(af_httpd *h, int fd, const char *address, af_error *err);
void af_httpd_conn_event(af_httpd_conn *c, uint32_t events);
/* Goes on with input that was there before the last answer ended; receives nothing. */
void af_httpd_conn_resume(af_httpd_conn *c);
/* Sends `answer` (a text of the program) to a socket that cannot be served and closes it, without
 * memory. */
void af_httpd_turn_away(af_httpd *h, int fd, const char *answer);
extern const char af_httpd_no_memory[]; /* such an answer */
/* New output, or an answer is complete. */
void af_httpd_conn_output(af_httpd_conn *c);
/* Time limits; called a few times per second. */
void af_httpd_conn_check(af_httpd_conn *c, double now);
void af_httpd_conn_close(af_httpd_conn *c);
/* Frees it, when closed. */
void af_httpd_conn_free(af_httpd_conn *c);
#endif
