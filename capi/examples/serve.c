/*
 * serve PORT FILE: gives the file to whoever asks over HTTP/1.0, whatever for; port 0 for a free one. Says the port once it listens. One thread and poll
 * for those who have not asked yet; nothing here knows of flows.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ASKING_MAX = 64 };

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int listen_at(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0)
        fail("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("bind");
    if (listen(fd, 16) < 0)
        fail("listen");
    if (getsockname(fd, (struct sockaddr *)&address, &len) < 0)
        fail("getsockname");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

/* Answers and closes: what was written arrives nonetheless. */
static void answer(int fd, const char *path)
{
    char head[128];
    int file = open(path, O_RDONLY);
    struct stat stat;
    if (file < 0 || fstat(file, &stat) < 0)
        fail(path);
    int len = snprintf(head, sizeof head, "HTTP/1.0 200 OK\r\nContent-Length: %lld\r\n\r\n", (long long)stat.st_size);
    if (write(fd, head, (size_t)len) == len) {
        off_t offset = 0;
        while (offset < stat.st_size && sendfile(fd, file, &offset, (size_t)(stat.st_size - offset)) > 0)
            ;
    }
    close(file);
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: serve PORT FILE\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    struct pollfd polled[1 + ASKING_MAX] = {{.fd = listen_at(argv[1]), .events = POLLIN}};
    nfds_t count = 1;
    for (;;) {
        if (poll(polled, count, -1) < 0)
            fail("poll");
        for (nfds_t at = count; at-- > 1;) {
            if (!polled[at].revents)
                continue;
            char asked[4096];
            if (recv(polled[at].fd, asked, sizeof asked, 0) > 0)
                answer(polled[at].fd, argv[2]);
            else
                close(polled[at].fd);
            polled[at] = polled[--count];
        }
        polled[0].events = count <= ASKING_MAX ? POLLIN : 0;
        if (polled[0].revents & POLLIN) {
            int fd = accept(polled[0].fd, NULL, NULL);
            if (fd >= 0)
                polled[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
        }
    }
}
