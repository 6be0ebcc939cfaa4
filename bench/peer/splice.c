/* The floor: a socket's bytes into a file by splice, and no more HTTP than a benchmark needs.
 *
 *     splice PORT FOLDER [sync]
 *
 * One thread a connection. A request's head is read byte after byte up to its empty line, so that none of the body is taken with it;
 * the body of Content-Length bytes goes through a pipe of 1 MiB into a new file of FOLDER. With `sync` the file's bytes, then its name,
 * are on disk before the answer, as a gateway's are.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PIPE_BYTES = 1 << 20, HEAD_BYTES = 4096 };

static int folder;
static bool durable;
static atomic_ulong names;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* The body's length, or -1 at the end of the connection. */
static long long read_head(int connection) {
    char head[HEAD_BYTES];
    size_t length = 0;
    while (length < sizeof head - 1) {
        /* What has come is looked at, and only the head's part of it is taken. */
        ssize_t seen = recv(connection, head + length, sizeof head - 1 - length, MSG_PEEK);
        if (seen <= 0) return -1;
        head[length + (size_t)seen] = 0;
        char *from = head + (length > 3 ? length - 3 : 0);
        char *end = strstr(from, "\r\n\r\n");
        size_t take = end ? (size_t)(end + 4 - (head + length)) : (size_t)seen;
        if (recv(connection, head + length, take, MSG_WAITALL) != (ssize_t)take) return -1;
        length += take;
        if (!end) continue;
        head[length] = 0;
        char *field = strcasestr(head, "\r\nContent-Length:");
        return field ? atoll(field + 17) : 0;
    }
    return -1;
}

static void store(int connection, long long left, int *pipes) {
    char name[32];
    snprintf(name, sizeof name, "%lu", atomic_fetch_add(&names, 1));
    int file = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0) fail("openat");
    while (left > 0) {
        ssize_t taken = splice(connection, NULL, pipes[1], NULL, left < PIPE_BYTES ? (size_t)left : PIPE_BYTES, SPLICE_F_MOVE);
        if (taken <= 0) fail("splice from the socket");
        for (ssize_t inside = taken; inside > 0;) {
            ssize_t put = splice(pipes[0], NULL, file, NULL, (size_t)inside, SPLICE_F_MOVE);
            if (put <= 0) fail("splice to the file");
            inside -= put;
        }
        left -= taken;
    }
    if (durable && (fdatasync(file) || fsync(folder))) fail("sync");
    close(file);
}

static void *converse(void *argument) {
    int connection = (int)(long)argument, pipes[2];
    if (pipe(pipes)) fail("pipe");
    fcntl(pipes[1], F_SETPIPE_SZ, PIPE_BYTES);
    for (;;) {
        long long length = read_head(connection);
        if (length < 0) break;
        store(connection, length, pipes);
        static const char answer[] = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";
        if (send(connection, answer, sizeof answer - 1, MSG_NOSIGNAL) < 0) break;
    }
    close(pipes[0]);
    close(pipes[1]);
    close(connection);
    return NULL;
}

int main(int count, char **arguments) {
    if (count < 3) {
        fputs("splice PORT FOLDER [sync]\n", stderr);
        return 2;
    }
    folder = open(arguments[2], O_RDONLY | O_DIRECTORY);
    if (folder < 0) fail(arguments[2]);
    durable = count > 3;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(arguments[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 128)) fail("bind");
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        if (connection < 0) fail("accept");
        pthread_t thread;
        if (pthread_create(&thread, NULL, converse, (void *)(long)connection)) fail("pthread_create");
        pthread_detach(thread);
    }
}
