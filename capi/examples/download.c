/*
 * download ADDRESS PORT PATH: fetches a file over HTTP/1.0 and writes it to standard output. Nothing here knows of flows: port.sed makes it a program
 * that goes on through changes of address and outages.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int connect_to(const char *ip, const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    if (inet_pton(AF_INET, ip, &address.sin_addr) != 1) {
        fprintf(stderr, "%s is no IPv4 address\n", ip);
        exit(2);
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0)
        fail("socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("connect");
    return fd;
}

static void write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t written = write(fd, bytes, len);
        if (written < 0)
            fail("write");
        bytes += written;
        len -= (size_t)written;
    }
}

/* Past the answer's head, of which `head` bytes of its end have been seen. */
static const char *past_head(const char *at, const char *end, int *head)
{
    static const char mark[] = "\r\n\r\n";
    while (at < end && *head < 4) {
        *head = *at == mark[*head] ? *head + 1 : *at == '\r';
        at++;
    }
    return at;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: download ADDRESS PORT PATH\n");
        return 2;
    }
    int fd = connect_to(argv[1], argv[2]);
    char bytes[64 * 1024];
    int len = snprintf(bytes, sizeof bytes, "GET %s HTTP/1.0\r\n\r\n", argv[3]);
    write_all(fd, bytes, (size_t)len);
    if (shutdown(fd, SHUT_WR) < 0)
        fail("shutdown");
    ssize_t got;
    int head = 0;
    while ((got = read(fd, bytes, sizeof bytes)) > 0) {
        const char *end = bytes + got, *body = past_head(bytes, end, &head);
        write_all(STDOUT_FILENO, body, (size_t)(end - body));
    }
    if (got < 0)
        fail("read");
    close(fd);
    return 0;
}
