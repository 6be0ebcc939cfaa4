/*
 * What d2tp.h promises, checked from C: both ends in one process, which is told the server's file and the device's. Says the port that it listens at, waits for a line (the device's file is there then), and ends with 0 or
 * at the first claim that is wrong.
 */
#include <arpa/inet.h>
#include <d2tp.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <signal.h>
#include <unistd.h>

#define CHECK(claim)                                                                                                   \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        if (!(claim)) {                                                                                                \
            fprintf(stderr, "%s:%d: %s (errno: %s)\n", __FILE__, __LINE__, #claim, strerror(errno));                    \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#define FAILS(call, number) CHECK((call) == -1 && errno == (number))

enum { LONG = 2000000 };

static struct sockaddr_in at(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int new_socket(void)
{
    int fd = d2tp_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    return fd;
}

static int dial(int fd, int port)
{
    struct sockaddr_in address = at(port);
    return d2tp_connect(fd, (struct sockaddr *)&address, sizeof address);
}

static int listen_at(int port, int *bound)
{
    struct sockaddr_in address = at(port);
    socklen_t len = sizeof address;
    int fd = new_socket();
    CHECK(d2tp_bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(d2tp_listen(fd, 8) == 0);
    CHECK(d2tp_getsockname(fd, (struct sockaddr *)&address, &len) == 0 && len == sizeof address);
    *bound = ntohs(address.sin_port);
    return fd;
}

static int ready(int fd, short events, int timeout)
{
    struct pollfd polled = {.fd = fd, .events = events};
    CHECK(d2tp_poll(&polled, 1, timeout) >= 0);
    return polled.revents;
}

static void pair(int listener, int port, int *client, int *server)
{
    *client = new_socket();
    CHECK(dial(*client, port) == 0);
    CHECK(ready(listener, POLLIN, 20000) == POLLIN);
    CHECK((*server = d2tp_accept(listener, NULL, NULL)) >= 0);
}

static void fill(unsigned char *bytes, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)((i * 2654435761u + seed) >> 7);
}

static void write_all(int fd, const unsigned char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t written = d2tp_write(fd, bytes, len);
        CHECK(written > 0);
        bytes += written;
        len -= (size_t)written;
    }
}

static void expect(int fd, unsigned seed)
{
    unsigned char *wanted = malloc(LONG), *got = malloc(LONG);
    size_t len = 0;
    fill(wanted, LONG, seed);
    while (len < LONG) {
        ssize_t read = d2tp_read(fd, got + len, LONG - len);
        CHECK(read > 0);
        len += (size_t)read;
    }
    CHECK(memcmp(got, wanted, LONG) == 0);
    CHECK(d2tp_read(fd, got, 1) == 0);
    free(wanted);
    free(got);
}

static void numbers(void)
{
    struct sockaddr_in address = at(1);
    struct sockaddr *any = (struct sockaddr *)&address;
    char byte = 0;
    int value = 0, fd = new_socket(), foreign[2];
    socklen_t len = sizeof value;
    uint64_t id;
    FAILS(d2tp_socket(AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
    FAILS(d2tp_socket(AF_INET, SOCK_DGRAM, 0), EPROTOTYPE);
    FAILS(d2tp_socket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
    FAILS(d2tp_recv(fd, &byte, 1, 0), ENOTCONN);
    FAILS(d2tp_send(fd, &byte, 1, 0), ENOTCONN);
    FAILS(d2tp_shutdown(fd, SHUT_WR), ENOTCONN);
    FAILS(d2tp_shutdown(fd, 7), EINVAL);
    FAILS(d2tp_getpeername(fd, any, &len), ENOTCONN);
    FAILS(d2tp_getflowid(fd, &id), ENOTCONN);
    FAILS(d2tp_accept(fd, NULL, NULL), EINVAL);
    FAILS(d2tp_connect(fd, any, 3), EINVAL);
    FAILS(d2tp_connect(fd, NULL, sizeof address), EFAULT);
    address.sin_family = AF_UNIX;
    FAILS(d2tp_connect(fd, any, sizeof address), EAFNOSUPPORT);
    FAILS(d2tp_setsockopt(fd, SOL_SOCKET, 0x4fff, &value, sizeof value), ENOPROTOOPT);
    FAILS(d2tp_getsockopt(fd, SOL_SOCKET, 0x4fff, &value, &len), ENOPROTOOPT);
    FAILS(d2tp_ioctl(fd, TIOCGWINSZ, &value), ENOTTY);
    CHECK(d2tp_isd2tpsocket(fd) == 1);
    CHECK(d2tp_close(fd) == 0);
    FAILS(d2tp_close(fd), EBADF);
    FAILS(d2tp_recv(fd, &byte, 1, 0), EBADF);
    FAILS(d2tp_listen(-1, 1), EBADF);
    /* Others' descriptors are no sockets of ours; calls that take any take these. */
    CHECK(pipe(foreign) == 0);
    FAILS(d2tp_send(foreign[1], &byte, 1, 0), ENOTSOCK);
    FAILS(d2tp_listen(foreign[1], 1), ENOTSOCK);
    FAILS(d2tp_getsockopt(foreign[1], SOL_SOCKET, SO_ERROR, &value, &len), ENOTSOCK);
    CHECK(d2tp_isd2tpsocket(foreign[1]) == 0);
    CHECK(d2tp_write(foreign[1], "x", 1) == 1 && d2tp_read(foreign[0], &byte, 1) == 1 && byte == 'x');
    CHECK(d2tp_close(foreign[0]) == 0 && d2tp_close(foreign[1]) == 0);
}

static void options(void)
{
    int fd = new_socket(), value = 3600;
    uint64_t size = (uint64_t)5 << 32, told = 0;
    struct d2tp_rcvbufth thresholds = {.high = 1000, .low = 1000};
    socklen_t len = sizeof told;
    CHECK(d2tp_setsockopt(fd, SOL_SOCKET, D2TP_SO_DEADLINE, &value, sizeof value) == 0);
    CHECK(d2tp_setsockopt(fd, SOL_SOCKET, D2TP_SO_ESIZE, &size, sizeof size) == 0);
    CHECK(d2tp_getsockopt(fd, SOL_SOCKET, D2TP_SO_ESIZE, &told, &len) == 0 && told == size && len == 8);
    FAILS(d2tp_setsockopt(fd, SOL_SOCKET, D2TP_SO_RCVBUFTH, &thresholds, sizeof thresholds), EINVAL);
    thresholds.low = 999;
    CHECK(d2tp_setsockopt(fd, SOL_SOCKET, D2TP_SO_RCVBUFTH, &thresholds, sizeof thresholds) == 0);
    CHECK(d2tp_setsockopt(fd, SOL_SOCKET, D2TP_SO_WIFIONLY, &value, sizeof value) == 0);
    CHECK(d2tp_setsockopt(fd, SOL_SOCKET, D2TP_SO_BINDTODEVICE, "lo", 3) == 0);
    FAILS(d2tp_setsockopt(fd, SOL_SOCKET, D2TP_SO_BINDTODEVICE, "nosuch0", 8), ENODEV);
    FAILS(d2tp_setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "nosuch0", 8), ENODEV);
    CHECK(d2tp_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value) == 0);
    len = sizeof value;
    CHECK(d2tp_getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len) == 0 && value == SOCK_STREAM);
    CHECK(d2tp_getsockopt(fd, SOL_SOCKET, D2TP_SO_DEADLINE, &value, &len) == 0 && value > 3590 && value <= 3600);
    CHECK(d2tp_close(fd) == 0);
}

/* How much a writer gets rid of while nobody reads. */
static size_t stuffed(int fd)
{
    static unsigned char bytes[LONG];
    size_t len = 0;
    CHECK(d2tp_fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    fill(bytes, LONG, 5);
    while (ready(fd, POLLOUT, 500) & POLLOUT) {
        ssize_t written = d2tp_write(fd, bytes + len % LONG, LONG - len % LONG);
        CHECK(written > 0);
        len += (size_t)written;
    }
    return len;
}

static void thresholds_bound_what_comes(int listener, int port)
{
    struct d2tp_rcvbufth narrow = {.high = 65536, .low = 16384}, wide = {.high = 8 << 20, .low = 1 << 20};
    struct d2tp_rcvbufth *both[] = {&narrow, &wide};
    size_t len[2];
    for (int i = 0; i < 2; i++) {
        static unsigned char bytes[LONG], wanted[LONG];
        int client = new_socket(), server, seconds = 3600, left;
        socklen_t size = sizeof left;
        CHECK(d2tp_setsockopt(client, SOL_SOCKET, D2TP_SO_RCVBUFTH, both[i], sizeof narrow) == 0);
        CHECK(d2tp_setsockopt(client, SOL_SOCKET, D2TP_SO_DEADLINE, &seconds, sizeof seconds) == 0);
        CHECK(dial(client, port) == 0);
        CHECK((server = d2tp_accept(listener, NULL, NULL)) >= 0);
        /* The other end knows when it should be done. */
        CHECK(d2tp_getsockopt(server, SOL_SOCKET, D2TP_SO_DEADLINE, &left, &size) == 0 && left > 3500 && left <= 3600);
        len[i] = stuffed(server);
        CHECK(d2tp_close(server) == 0);
        fill(wanted, LONG, 5);
        for (size_t at = 0; at < len[i];) {
            ssize_t read = d2tp_read(client, bytes, LONG - at % LONG);
            CHECK(read > 0 && memcmp(bytes, wanted + at % LONG, (size_t)read) == 0);
            at += (size_t)read;
        }
        CHECK(d2tp_read(client, bytes, 1) == 0);
        CHECK(d2tp_close(client) == 0);
    }
    CHECK(len[1] > len[0] + (6 << 20));
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void a_deadline_ends_a_flow_when_it_has_passed(int listener, int port)
{
    int client = new_socket(), server, seconds = 3;
    char byte;
    CHECK(d2tp_setsockopt(client, SOL_SOCKET, D2TP_SO_DEADLINE, &seconds, sizeof seconds) == 0);
    double begun = seconds_now();
    CHECK(dial(client, port) == 0);
    CHECK((server = d2tp_accept(listener, NULL, NULL)) >= 0);
    FAILS(d2tp_recv(client, &byte, 1, 0), ETIMEDOUT);
    double passed = seconds_now() - begun;
    CHECK(passed >= 3 && passed < 8);
    /* Here the other end waits for a minute yet; it is given up. */
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    CHECK(d2tp_setsockopt(server, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    CHECK(d2tp_close(client) == 0 && d2tp_close(server) == 0);
}

static void messages(int listener, int port)
{
    int client = new_socket(), server, pair[2];
    char bytes[16] = {0}, more[16] = {0}, beside[CMSG_SPACE(sizeof(int))] = {0};
    struct sockaddr_in nobody = at(1), from;
    struct iovec parts[] = {{"ab", 2}, {"cde", 3}}, into[] = {{bytes, 3}, {more, 5}};
    struct msghdr message = {.msg_name = &nobody, .msg_namelen = sizeof nobody, .msg_iov = parts, .msg_iovlen = 2};
    struct msghdr read = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = into, .msg_iovlen = 2, .msg_control = beside, .msg_controllen = sizeof beside};
    CHECK(dial(client, port) == 0);
    CHECK((server = d2tp_accept(listener, NULL, NULL)) >= 0);
    /* A descriptor is no bytes: it stays here. */
    CHECK(pipe(pair) == 0);
    message.msg_control = beside;
    message.msg_controllen = sizeof beside;
    struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
    passed->cmsg_level = SOL_SOCKET;
    passed->cmsg_type = SCM_RIGHTS;
    passed->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(passed), &pair[1], sizeof(int));
    CHECK(d2tp_sendmsg(client, &message, MSG_NOSIGNAL) == 5);
    CHECK(close(pair[1]) == 0 && d2tp_read(pair[0], bytes, 1) == 0 && close(pair[0]) == 0);
    CHECK(ready(server, POLLIN, 20000) == POLLIN);
    CHECK(d2tp_recvmsg(server, &read, MSG_PEEK) == 5 && read.msg_namelen == 0 && read.msg_controllen == 0);
    CHECK(memcmp(bytes, "abc", 3) == 0 && memcmp(more, "de", 2) == 0);
    CHECK(d2tp_send(client, "fgh", 3, 0) == 3);
    read.msg_control = NULL;
    CHECK(d2tp_recvmsg(server, &read, MSG_WAITALL) == 8 && memcmp(more, "defgh", 5) == 0);
    CHECK(d2tp_shutdown(client, SHUT_WR) == 0);
    FAILS(d2tp_sendmsg(client, &message, MSG_NOSIGNAL), EPIPE);
    FAILS(d2tp_sendmsg(server, NULL, 0), EFAULT);
    CHECK(d2tp_recvmsg(server, &read, 0) == 0);
    CHECK(d2tp_close(client) == 0 && d2tp_close(server) == 0);
}

static void not_blocking(int listener, int port)
{
    int client = new_socket(), server, value = -1;
    socklen_t len = sizeof value;
    uint64_t id = 0, other = 0;
    unsigned char host[20], also[20];
    char bytes[8] = {0};
    CHECK(d2tp_fcntl(client, F_SETFL, O_NONBLOCK) == 0);
    CHECK(d2tp_fcntl(client, F_GETFL) & O_NONBLOCK);
    FAILS(dial(client, port), EINPROGRESS);
    CHECK(ready(client, POLLOUT, 20000) == POLLOUT);
    CHECK(d2tp_getsockopt(client, SOL_SOCKET, SO_ERROR, &value, &len) == 0 && value == 0);
    FAILS(dial(client, port), EISCONN);
    /* An accepting socket is readable while there is something to accept. */
    CHECK(d2tp_fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
    CHECK(ready(listener, POLLIN, 20000) == POLLIN);
    CHECK((server = d2tp_accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0);
    CHECK(ready(listener, POLLIN, 0) == 0);
    FAILS(d2tp_accept(listener, NULL, NULL), EAGAIN);
    CHECK(d2tp_fcntl(listener, F_SETFL, 0) == 0);
    CHECK(d2tp_getflowid(client, &id) == 0 && d2tp_getflowid(server, &other) == 0 && id == other);
    CHECK(d2tp_gethostid(client, host) == 0 && d2tp_gethostid(server, also) == 0 && memcmp(host, also, 20) == 0);
    FAILS(d2tp_read(client, bytes, 1), EAGAIN);
    struct iovec parts[] = {{"ab", 2}, {"cd", 2}};
    CHECK(d2tp_writev(client, parts, 2) == 4);
    CHECK(ready(server, POLLIN, 20000) == POLLIN);
    CHECK(d2tp_recv(server, bytes, 8, MSG_PEEK) == 4);
    CHECK(d2tp_ioctl(server, FIONREAD, &value) == 0 && value == 4);
    struct iovec into = {bytes, 8};
    CHECK(d2tp_readv(server, &into, 1) == 4 && memcmp(bytes, "abcd", 4) == 0);
    /* epoll and select are the kernel's. */
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, client, &event) == 0);
    CHECK(write(server, "e", 1) == 1);
    CHECK(epoll_wait(epoll, &event, 1, 20000) == 1 && event.events == EPOLLIN);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(client, &set);
    CHECK(d2tp_select(client + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(client, &set));
    CHECK(read(client, bytes, 8) == 1 && bytes[0] == 'e');
    /* Half closed, and answered after that. */
    CHECK(d2tp_shutdown(client, SHUT_WR) == 0);
    FAILS(d2tp_send(client, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(d2tp_read(server, bytes, 1) == 0);
    CHECK(d2tp_write(server, "late", 4) == 4);
    CHECK(ready(client, POLLIN, 20000) & POLLIN);
    CHECK(d2tp_read(client, bytes, 8) == 4);
    CHECK(d2tp_close(server) == 0);
    CHECK(ready(client, POLLIN, 20000) & POLLIN);
    CHECK(d2tp_read(client, bytes, 8) == 0);
    CHECK(d2tp_close(client) == 0);
    close(epoll);
}

static void refusals(int port)
{
    int fd = new_socket(), value = 0;
    socklen_t len = sizeof value;
    /* Nobody listens there. */
    FAILS(dial(fd, port + 1), ECONNREFUSED);
    CHECK(d2tp_close(fd) == 0);
    fd = d2tp_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    FAILS(dial(fd, port + 1), EINPROGRESS);
    CHECK(ready(fd, POLLOUT, 20000) & POLLERR);
    CHECK(d2tp_getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &len) == 0 && value == ECONNREFUSED);
    CHECK(d2tp_close(fd) == 0);
}

static void resets(int listener, int port)
{
    int client, server;
    char bytes[8];
    struct linger at_once = {1, 0};
    pair(listener, port, &client, &server);
    CHECK(d2tp_write(server, "last", 4) == 4);
    CHECK(ready(client, POLLIN, 20000) == POLLIN);
    CHECK(d2tp_setsockopt(server, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    CHECK(d2tp_close(server) == 0);
    /* What came before is read; then the kernel itself says that it is a reset, and no end. */
    CHECK(ready(client, 0, 20000) & POLLERR);
    CHECK(d2tp_read(client, bytes, 8) == 4);
    FAILS(d2tp_read(client, bytes, 8), ECONNRESET);
    CHECK(d2tp_read(client, bytes, 8) == 0);
    FAILS(d2tp_send(client, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(d2tp_close(client) == 0);
}

static void closing_delivers(int listener, int port)
{
    static unsigned char bytes[LONG];
    int client, server;
    pair(listener, port, &client, &server);
    fill(bytes, LONG, 1);
    write_all(client, bytes, LONG);
    CHECK(d2tp_close(client) == 0);
    expect(server, 1);
    CHECK(d2tp_close(server) == 0);
    /* With SO_LINGER, close returns when it is delivered; and a plain close is as good. */
    struct linger wait = {1, 20};
    pair(listener, port, &client, &server);
    CHECK(d2tp_setsockopt(client, SOL_SOCKET, SO_LINGER, &wait, sizeof wait) == 0);
    CHECK(d2tp_write(client, "x", 1) == 1);
    CHECK(d2tp_close(client) == 0);
    CHECK(ready(server, POLLIN, 20000) & POLLIN);
    CHECK(close(server) == 0);
}

static void *send_one(void *fd)
{
    unsigned char *bytes = malloc(LONG);
    fill(bytes, LONG, 7);
    write_all(*(int *)fd, bytes, LONG);
    CHECK(d2tp_shutdown(*(int *)fd, SHUT_WR) == 0);
    free(bytes);
    return NULL;
}

static void threads(int listener, int port)
{
    int client[2], server[2];
    pthread_t sending[4];
    for (int i = 0; i < 2; i++)
        pair(listener, port, &client[i], &server[i]);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&sending[i], NULL, send_one, &client[i]) == 0);
        CHECK(pthread_create(&sending[2 + i], NULL, send_one, &server[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        expect(server[i], 7);
        expect(client[i], 7);
    }
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(sending[i], NULL) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(d2tp_close(client[i]) == 0 && d2tp_close(server[i]) == 0);
}

static void forks(int listener, int port)
{
    int client, server, status;
    char bytes[8];
    pair(listener, port, &client, &server);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* The parent carries what the child reads and writes. */
        CHECK(d2tp_read(server, bytes, 8) == 4);
        CHECK(d2tp_write(server, "fork", 4) == 4);
        FAILS(d2tp_socket(AF_INET, SOCK_STREAM, 0), EOPNOTSUPP);
        CHECK(d2tp_read(server, bytes, 8) == 0);
        exit(0);
    }
    CHECK(d2tp_close(server) == 0);
    CHECK(d2tp_write(client, "ping", 4) == 4);
    CHECK(d2tp_read(client, bytes, 8) == 4 && memcmp(bytes, "fork", 4) == 0);
    CHECK(d2tp_shutdown(client, SHUT_WR) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(d2tp_read(client, bytes, 8) == 0);
    CHECK(d2tp_close(client) == 0);
}

static void listeners(int listener, int port)
{
    struct sockaddr_in address = at(port);
    int other = new_socket(), value = 0;
    socklen_t len = sizeof value;
    CHECK(d2tp_bind(other, (struct sockaddr *)&address, sizeof address) == 0);
    FAILS(d2tp_bind(other, (struct sockaddr *)&address, sizeof address), EINVAL);
    FAILS(d2tp_listen(other, 1), EADDRINUSE);
    CHECK(d2tp_getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &value, &len) == 0 && value == 1);
    /* Once it is free, the same socket can have it; flows that were accepted go on. */
    int client, server;
    char byte;
    pair(listener, port, &client, &server);
    CHECK(d2tp_close(listener) == 0);
    CHECK(d2tp_listen(other, 1) == 0);
    CHECK(d2tp_write(client, "x", 1) == 1 && d2tp_read(server, &byte, 1) == 1);
    CHECK(d2tp_close(client) == 0 && d2tp_close(server) == 0);
    pair(other, port, &client, &server);
    CHECK(d2tp_close(client) == 0 && d2tp_close(server) == 0 && d2tp_close(other) == 0);
    other = new_socket();
    FAILS(dial(other, port), ECONNREFUSED);
    CHECK(d2tp_close(other) == 0);
}

/* A server that is not there, with the device's file about it. */
static int away(const char *device)
{
    int fd = new_socket(), limit = 300;
    struct timeval wait = {.tv_usec = 20000};
    CHECK(d2tp_setup(device) == 0);
    CHECK(d2tp_setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit) == 0);
    FAILS(dial(fd, 1), ETIMEDOUT);
    CHECK(d2tp_close(fd) == 0);
    /* SO_SNDTIMEO ends the call, and not what it began. */
    fd = new_socket();
    CHECK(d2tp_setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit) == 0);
    CHECK(d2tp_setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) == 0);
    FAILS(dial(fd, 1), EINPROGRESS);
    FAILS(dial(fd, 1), EALREADY);
    CHECK(ready(fd, POLLOUT, 20000) & POLLERR);
    FAILS(d2tp_read(fd, &limit, 1), ETIMEDOUT);
    return d2tp_close(fd);
}

/* Says all and leaves at once, by what main returns. */
static int leave(const char *device, int port)
{
    static unsigned char bytes[LONG];
    int fd = new_socket();
    CHECK(d2tp_setup(device) == 0);
    CHECK(dial(fd, port) == 0);
    fill(bytes, LONG, 9);
    write_all(fd, bytes, LONG);
    return 0;
}

/* Downloads over the way that an option names, and says how many bytes that were, or why not. */
static int by_way(const char *option, const char *device, const char *host, int port)
{
    static char bytes[65536];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = new_socket(), on = 1;
    ssize_t read, len = 0;
    CHECK(d2tp_setup(device) == 0);
    CHECK(inet_pton(AF_INET, host, &address.sin_addr) == 1);
    if (strcmp(option, "wifi-only") == 0)
        CHECK(d2tp_setsockopt(fd, SOL_SOCKET, D2TP_SO_WIFIONLY, &on, sizeof on) == 0);
    else
        CHECK(d2tp_setsockopt(fd, SOL_SOCKET, D2TP_SO_BINDTODEVICE, option, (socklen_t)strlen(option)) == 0);
    if (d2tp_connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        puts(errno == ENETUNREACH ? "ENETUNREACH" : strerror(errno));
        return 0;
    }
    FAILS(d2tp_setsockopt(fd, SOL_SOCKET, D2TP_SO_WIFIONLY, &on, sizeof on), EISCONN);
    CHECK(d2tp_write(fd, "GET / HTTP/1.0\r\n\r\n", 18) == 18);
    while ((read = d2tp_read(fd, bytes, sizeof bytes)) > 0)
        len += read;
    CHECK(read == 0);
    printf("%zd\n", len);
    return 0;
}

static void leaving_delivers(int listener, int port, const char *device)
{
    char number[16];
    int server, status;
    snprintf(number, sizeof number, "%d", port);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execl("/proc/self/exe", "checks", "leave", device, number, NULL);
        _exit(1);
    }
    CHECK((server = d2tp_accept(listener, NULL, NULL)) >= 0);
    expect(server, 9);
    CHECK(d2tp_close(server) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
    int port, listener;
    alarm(60);
    if (argc == 3 && strcmp(argv[1], "away") == 0)
        return away(argv[2]);
    if (argc == 4 && strcmp(argv[1], "leave") == 0)
        return leave(argv[2], atoi(argv[3]));
    if (argc == 6 && strcmp(argv[1], "way") == 0)
        return by_way(argv[2], argv[3], argv[4], atoi(argv[5]));
    CHECK(argc == 3);
    numbers();
    options();
    FAILS(d2tp_setup("/nonexistent"), ENOENT);
    FAILS(d2tp_setup_server(NULL), EFAULT);
    CHECK(d2tp_setup_server(argv[1]) == 0);
    listener = listen_at(0, &port);
    FAILS(d2tp_setup_server(argv[1]), EBUSY);
    int nowhere = new_socket();
    FAILS(dial(nowhere, port), ENETUNREACH);
    CHECK(d2tp_close(nowhere) == 0);
    printf("%d\n", port);
    fflush(stdout);
    CHECK(getchar() == '\n');
    CHECK(d2tp_setup(argv[2]) == 0);
    not_blocking(listener, port);
    FAILS(d2tp_setup(argv[2]), EBUSY);
    messages(listener, port);
    a_deadline_ends_a_flow_when_it_has_passed(listener, port);
    refusals(port);
    resets(listener, port);
    closing_delivers(listener, port);
    threads(listener, port);
    forks(listener, port);
    leaving_delivers(listener, port, argv[2]);
    thresholds_bound_what_comes(listener, port);
    listeners(listener, port);
    return 0;
}
