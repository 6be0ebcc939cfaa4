/*
 * What programs do with sockets that is easily got wrong by what is loaded into them. Each way is the name that this is run with; it ends with 0 if all is well. The agent that it
 * talks to echoes. An alarm ends what hangs.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, strerror(errno)); _exit(1); } } while (0)

/* Where a machine under heavy load is in no hurry. */
#define HANGS_AFTER 60

static const struct sockaddr_in SOMEWHERE = {.sin_family = AF_INET, .sin_port = 0x5000, .sin_addr = {0x0101090a}};

static int tcp(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    return fd;
}

static int connected(void) {
    int fd = tcp();
    CHECK(connect(fd, (const struct sockaddr *)&SOMEWHERE, sizeof SOMEWHERE) == 0);
    return fd;
}

static void echoes(int fd) {
    char back[6] = "";
    CHECK(read(fd, back, 5) == 5 && strcmp(back, "hello") == 0);
}

static void is_somewhere(int fd) {
    struct sockaddr_in peer;
    socklen_t len = sizeof peer;
    CHECK(getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && len == sizeof peer);
    CHECK(peer.sin_family == AF_INET && peer.sin_port == SOMEWHERE.sin_port && peer.sin_addr.s_addr == SOMEWHERE.sin_addr.s_addr);
}

/* Ends with 0 if the kernel was asked, which has no network here. */
static void is_left_alone(const char *host) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(80)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(80)};
    bool is_v6 = strchr(host, ':');
    CHECK(inet_pton(is_v6 ? AF_INET6 : AF_INET, host, is_v6 ? (void *)&v6.sin6_addr : (void *)&v4.sin_addr) == 1);
    int fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK(connect(fd, is_v6 ? (void *)&v6 : (void *)&v4, is_v6 ? sizeof v6 : sizeof v4) != 0);
    CHECK(errno == ENETUNREACH || errno == EINVAL || errno == EACCES || errno == EHOSTUNREACH || errno == EADDRNOTAVAIL);
    close(fd);
}

static void *hammers(void *unused) {
    for (;;) {
        int fd = connected();
        for (int i = 0; i < 100; i++) is_somewhere(fd);
        close(fd);
    }
    return unused;
}

static void in_a_handler(int number) {
    int before = errno, fd = connected();
    (void)number;
    is_somewhere(fd);
    close(fd);
    errno = before;
}

static struct sockaddr_in port(int number) {
    struct sockaddr_in address = SOMEWHERE;
    address.sin_port = htons(number);
    return address;
}

static int connect_to(int fd, int number) {
    struct sockaddr_in address = port(number);
    return connect(fd, (const struct sockaddr *)&address, sizeof address);
}

static int set_of(int fd, unsigned int number) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u64 = 0xfedcba9876543210 + number};
    int set = epoll_create1(EPOLL_CLOEXEC);
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    return set;
}

static unsigned int event_of(int set, unsigned int number, int ms) {
    struct epoll_event event;
    if (epoll_wait(set, &event, 1, ms) != 1) return 0;
    CHECK(event.data.u64 == 0xfedcba9876543210 + number);
    return event.events;
}

static short ready(int fd, int ms) {
    struct pollfd asked = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    return poll(&asked, 1, ms) == 1 ? asked.revents : 0;
}

static bool is_selected(int fd) {
    struct timeval at_once = {0, 0};
    fd_set writable;
    FD_ZERO(&writable);
    FD_SET(fd, &writable);
    return select(fd + 1, NULL, &writable, NULL, &at_once) == 1;
}

static int error_of(int fd) {
    int error = -1;
    socklen_t len = sizeof error;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
    return error;
}

/* Waits until a set of its first member's events tells these; others may come before, and each is told once. */
static void tells(int set, unsigned int events) {
    for (unsigned int told = 0; !(told & events);) CHECK((told = event_of(set, 1, 10000)));
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void nothing(int number) {
    (void)number;
}

/* A signal that comes before the call that it is to interrupt would be missed: there is always a next one. */
static void interrupts_every_100_ms(int flags) {
    struct sigaction action = {.sa_handler = nothing, .sa_flags = flags};
    struct itimerval every = {{0, 100000}, {0, 100000}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
}

/* Lets the agent decide one connection to port 81 or 83; until then it is under way, however slow the machine is. */
static void decide(void) {
    CHECK(write(STDOUT_FILENO, "\n", 1) == 1);
}

/* What is sent without copying, as the agent at port 86 knows it. */
#define SENT (4 << 20)

static int file_to_send(void) {
    static unsigned char bytes[SENT];
    FILE *file = tmpfile();
    for (int at = 0; at < SENT; at++) bytes[at] = at % 251;
    CHECK(file && write(fileno(file), bytes, SENT) == SENT);
    return fileno(file);
}

/* Sends a file to the agent, which leaves the last byte each time: through a pipe or as it is. A connection that takes no more is waited for, or waits itself. */
static void sends_file(int file, bool by_pipe, bool waits) {
    int fd = tcp(), pair[2], in_pipe = 0;
    off_t at = 0;
    loff_t taken = 0;
    CHECK(connect_to(fd, 86) == 0 && pipe(pair) == 0 && fcntl(pair[1], F_SETPIPE_SZ, 1 << 20) > 0);
    if (!waits) CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    for (ssize_t sent, left = SENT; left > 0; left -= sent > 0 ? sent : 0) {
        if (by_pipe && in_pipe == 0) CHECK((in_pipe = splice(file, &taken, pair[1], NULL, left, 0)) > 0);
        sent = by_pipe ? splice(pair[0], NULL, fd, NULL, in_pipe, waits ? 0 : SPLICE_F_NONBLOCK) : sendfile(fd, file, &at, left);
        if (sent > 0 && by_pipe) in_pipe -= sent;
        CHECK(sent > 0 || (!waits && errno == EAGAIN && ready(fd, 10000) == POLLOUT));
    }
    CHECK(fcntl(fd, F_SETFL, 0) == 0 && write(fd, "hello", 5) == 5);
    echoes(fd);
    close(fd);
    close(pair[0]);
    close(pair[1]);
}

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "";
    alarm(HANGS_AFTER);
    if (!strcmp(way, "link-local")) {
        is_left_alone("169.254.169.254");
        is_left_alone("::ffff:169.254.1.1");
        is_left_alone("fe80::1");
        is_left_alone("ff02::1");
        is_left_alone("127.0.0.1");
    } else if (!strcmp(way, "sendto")) {
        int fd = tcp();
        CHECK(sendto(fd, "hello", 5, MSG_FASTOPEN, (const struct sockaddr *)&SOMEWHERE, sizeof SOMEWHERE) == 5);
        echoes(fd);
        is_somewhere(fd);
        CHECK(sendto(fd, "hello", 5, MSG_FASTOPEN, (const struct sockaddr *)&SOMEWHERE, sizeof SOMEWHERE) == -1 && errno == EISCONN);
    } else if (!strcmp(way, "sendmsg")) {
        struct iovec piece = {"hello", 5};
        struct mmsghdr message = {{.msg_name = (void *)&SOMEWHERE, .msg_namelen = sizeof SOMEWHERE, .msg_iov = &piece, .msg_iovlen = 1}, 0};
        int fd = tcp();
        CHECK(sendmsg(fd, &message.msg_hdr, MSG_FASTOPEN) == 5);
        echoes(fd);
        fd = tcp();
        CHECK(sendmmsg(fd, &message, 1, MSG_FASTOPEN) == 1 && message.msg_len == 5);
        echoes(fd);
    } else if (!strcmp(way, "fastopen-connect")) {
        int fd = tcp(), on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on);
        CHECK(connect(fd, (const struct sockaddr *)&SOMEWHERE, sizeof SOMEWHERE) == 0);
        CHECK(write(fd, "hello", 5) == 5);
        echoes(fd);
    } else if (!strcmp(way, "fork")) {
        pthread_t thread;
        for (int i = 0; i < 4; i++) CHECK(pthread_create(&thread, NULL, hammers, NULL) == 0);
        for (int i = 0; i < 300; i++) {
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) {
                alarm(HANGS_AFTER / 2);
                is_somewhere(connected());
                _exit(0);
            }
            int status;
            CHECK(waitpid(child, &status, 0) == child);
            CHECK(status == 0);
        }
    } else if (!strcmp(way, "signals")) {
        struct sigaction action = {.sa_handler = in_a_handler};
        struct itimerval often = {{0, 300}, {0, 300}};
        CHECK(sigaction(SIGVTALRM, &action, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &often, NULL) == 0);
        for (int i = 0; i < 3000; i++) {
            int fd = connected();
            for (int j = 0; j < 100; j++) is_somewhere(fd);
            close(fd);
        }
    } else if (!strcmp(way, "dup")) {
        int fd = connected(), copy = fcntl(fd, F_DUPFD, 5000);
        CHECK(copy >= 5000 || errno == EINVAL);
        copy = copy >= 0 ? copy : dup(fd);
        close(fd);
        CHECK(socket(AF_UNIX, SOCK_STREAM, 0) == fd);
        is_somewhere(copy);
        char number[16];
        snprintf(number, sizeof number, "%d", copy);
        execl(arguments[0], arguments[0], "inherited", number, (char *)NULL);
        CHECK(!"exec");
    } else if (!strcmp(way, "inherited")) {
        is_somewhere(atoi(arguments[2]));
    } else if (!strcmp(way, "options")) {
        int fd = tcp(), value = 1;
        struct linger linger = {1, 5};
        struct timeval time = {7, 0}, back = {0, 0};
        socklen_t len = sizeof back;
        CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
        CHECK(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value) == 0);
        CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
        CHECK(connect(fd, (const struct sockaddr *)&SOMEWHERE, sizeof SOMEWHERE) == 0);
        CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &back, &len) == 0 && back.tv_sec == 7);
        linger.l_linger = value = 0;
        len = sizeof linger;
        CHECK(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &len) == 0 && linger.l_linger == 5);
        len = sizeof value;
        CHECK(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &len) == 0 && value == 1);
        CHECK(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &len) == 0 && value == AF_INET);
        CHECK(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &value, &len) == 0 && value == IPPROTO_TCP);
        CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len) == 0 && value == SOCK_STREAM);
    } else if (!strcmp(way, "slow")) {
        int fd = tcp(), before = set_of(fd, 1);
        struct sockaddr_storage peer;
        socklen_t len = sizeof peer;
        /* A socket that is not connected is "hung up". */
        event_of(before, 1, 0);
        CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
        CHECK(connect_to(fd, 83) == -1 && errno == EINPROGRESS);
        int after = set_of(fd, 2), room = 1 << 20;
        CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
        CHECK(ready(fd, 0) == 0 && !is_selected(fd) && event_of(before, 1, 0) == 0 && event_of(after, 2, 0) == 0);
        CHECK(getpeername(fd, (struct sockaddr *)&peer, &len) == -1 && errno == ENOTCONN);
        CHECK(connect_to(fd, 83) == -1 && errno == EALREADY);
        CHECK(error_of(fd) == 0);
        decide();
        CHECK(ready(fd, 10000) == POLLOUT && is_selected(fd) && event_of(before, 1, 10000) == EPOLLOUT && event_of(after, 2, 10000) == EPOLLOUT);
        CHECK(error_of(fd) == 0);
        CHECK(getpeername(fd, (struct sockaddr *)&peer, &len) == 0);
        CHECK(connect_to(fd, 83) == 0);
        CHECK(connect_to(fd, 83) == -1 && errno == EISCONN);
        CHECK(write(fd, "hello", 5) == 5);
        tells(before, EPOLLIN);
        echoes(fd);
        double began = now();
        fd = tcp();
        CHECK(connect_to(fd, 84) == 0 && now() - began >= 0.29);
        CHECK(connect_to(fd, 84) == -1 && errno == EISCONN);
        CHECK(write(fd, "hello", 5) == 5);
        echoes(fd);
    } else if (!strcmp(way, "refused")) {
        int fd = tcp(), set = set_of(fd, 1);
        event_of(set, 1, 0);
        CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
        CHECK(connect_to(fd, 81) == -1 && errno == EINPROGRESS);
        CHECK(event_of(set, 1, 0) == 0);
        decide();
        unsigned int told = event_of(set, 1, 10000);
        CHECK((told & (EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP)) == (EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP));
        CHECK(ready(fd, 0) == (POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP));
        struct sockaddr_storage peer;
        socklen_t len = sizeof peer;
        CHECK(getpeername(fd, (struct sockaddr *)&peer, &len) == -1 && errno == ENOTCONN);
        int copy = dup(fd), status;
        CHECK(error_of(copy) == ECONNREFUSED && error_of(fd) == 0);
        close(copy);
        /* The error was told. */
        CHECK(connect_to(fd, 81) == -1 && errno == ECONNABORTED);
        CHECK(connect_to(fd, 81) == -1 && errno == EINPROGRESS);
        decide();
        CHECK(ready(fd, 10000) & POLLERR);
        CHECK(connect_to(fd, 81) == -1 && errno == ECONNREFUSED);
        CHECK(connect_to(fd, 80) == -1 && errno == EINPROGRESS);
        tells(set, EPOLLOUT);
        CHECK(error_of(fd) == 0);
        fd = tcp();
        decide();
        CHECK(connect_to(fd, 81) == -1 && errno == ECONNREFUSED);
        CHECK(connect_to(fd, 80) == 0 && write(fd, "hello", 5) == 5);
        echoes(fd);
        fd = tcp();
        CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && connect_to(fd, 81) == -1 && errno == EINPROGRESS);
        decide();
        pid_t child = fork();
        if (child == 0) {
            CHECK(ready(fd, 10000) & POLLERR && error_of(fd) == ECONNREFUSED);
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    } else if (!strcmp(way, "refused-at-once")) {
        for (int count = 0; count < 300; count++) {
            int fd = tcp();
            CHECK(connect_to(fd, 85) == -1 && errno == ECONNREFUSED);
            close(fd);
        }
    } else if (!strcmp(way, "interrupted")) {
        struct timeval short_time = {0, 200000};
        int fd = tcp();
        CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &short_time, sizeof short_time) == 0);
        CHECK(connect_to(fd, 82) == -1 && errno == EINPROGRESS);
        CHECK(connect_to(fd, 82) == -1 && errno == EINPROGRESS);
        fd = tcp();
        interrupts_every_100_ms(0);
        CHECK(connect_to(fd, 82) == -1 && errno == EINTR);
        CHECK(ready(fd, 0) == 0);
        interrupts_every_100_ms(SA_RESTART);
        fd = tcp();
        CHECK(connect_to(fd, 84) == 0 && write(fd, "hello", 5) == 5);
        echoes(fd);
    } else if (!strcmp(way, "messages")) {
        int fd = connected(), pair[2];
        char bytes[8] = "", more[8] = "", beside[CMSG_SPACE(sizeof(int))] = "";
        struct sockaddr_storage from;
        socklen_t len = sizeof from;
        struct iovec parts[] = {{"ab", 2}, {"cde", 3}}, into[] = {{bytes, 3}, {more, 5}};
        struct msghdr message = {
            .msg_name = (void *)&SOMEWHERE, .msg_namelen = sizeof SOMEWHERE, .msg_iov = parts, .msg_iovlen = 2, .msg_control = beside, .msg_controllen = sizeof beside,
        };
        struct msghdr read_into = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = into, .msg_iovlen = 2};
        CHECK(pipe(pair) == 0);
        struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
        passed->cmsg_level = SOL_SOCKET;
        passed->cmsg_type = SCM_RIGHTS;
        passed->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(passed), &pair[1], sizeof(int));
        CHECK(sendmsg(fd, &message, 0) == 5);
        close(pair[1]);
        CHECK(recvmsg(fd, &read_into, MSG_PEEK) > 0 && read_into.msg_namelen == 0 && bytes[0] == 'a');
        CHECK(sendto(fd, "fgh", 3, 0, (const struct sockaddr *)&SOMEWHERE, sizeof SOMEWHERE) == 3);
        CHECK(recvmsg(fd, &read_into, MSG_WAITALL) == 8 && !memcmp(bytes, "abc", 3) && !memcmp(more, "defgh", 5));
        struct mmsghdr two[2] = {{message, 0}, {message, 0}};
        CHECK(sendmmsg(fd, two, 2, 0) == 1 && two[0].msg_len == 5);
        CHECK(recvfrom(fd, bytes, 5, MSG_WAITALL, (struct sockaddr *)&from, &len) == 5 && len == 0 && !memcmp(bytes, "abcde", 5));
        CHECK(read(pair[0], bytes, 1) == 0);
    } else if (!strcmp(way, "disconnect")) {
        const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
        struct sockaddr_in peer;
        socklen_t len = sizeof peer;
        int fd = connected();
        CHECK(connect(fd, &nowhere, sizeof nowhere) == 0);
        CHECK(getpeername(fd, (struct sockaddr *)&peer, &len) == -1 && errno == ENOTCONN);
        CHECK(connect_to(fd, 80) == 0 && write(fd, "hello", 5) == 5);
        echoes(fd);
    } else if (!strcmp(way, "families")) {
        struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = htons(80)};
        int v6 = socket(AF_INET6, SOCK_STREAM, 0);
        CHECK(inet_pton(AF_INET6, "::ffff:10.9.1.1", &mapped.sin6_addr) == 1 && v6 >= 0);
        CHECK(connect(tcp(), (struct sockaddr *)&mapped, sizeof mapped) == -1 && errno == EAFNOSUPPORT);
        CHECK(connect_to(v6, 80) == -1 && errno == EINVAL);
        CHECK(connect_to(socket(AF_UNIX, SOCK_STREAM, 0), 80) == -1 && errno == EINVAL);
        CHECK(connect(v6, (struct sockaddr *)&mapped, sizeof mapped) == 0);
    } else if (!strcmp(way, "files")) {
        int file = file_to_send();
        for (int i = 0; i < 4; i++) sends_file(file, i & 1, i & 2);
    } else if (!strcmp(way, "names")) {
        struct addrinfo asks = {.ai_flags = AI_CANONNAME | AI_ADDRCONFIG, .ai_socktype = SOCK_STREAM}, *found;
        CHECK(getaddrinfo("Web.example", "80", &asks, &found) == 0 && !found->ai_next && found->ai_family == AF_INET);
        CHECK(!found->ai_canonname);
        int fd = tcp();
        CHECK(connect(fd, found->ai_addr, found->ai_addrlen) == 0);
        is_somewhere(fd);
        freeaddrinfo(found);
        asks.ai_family = AF_INET6;
        CHECK(getaddrinfo("web.example", "80", &asks, &found) == 0 && found->ai_family == AF_INET6);
        fd = socket(AF_INET6, SOCK_STREAM, 0);
        CHECK(fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0);
        freeaddrinfo(found);
        struct sockaddr_in old = SOMEWHERE;
        struct hostent *entry = gethostbyname("web.example"), room, *into;
        CHECK(entry && entry->h_addrtype == AF_INET && entry->h_length == 4);
        memcpy(&old.sin_addr, entry->h_addr_list[0], 4);
        CHECK(connect(tcp(), (struct sockaddr *)&old, sizeof old) == 0);
        char text[1024];
        int why;
        CHECK(gethostbyname_r("web.example", &room, text, sizeof text, &into, &why) == 0 && into && into->h_length == 4);
        CHECK(gethostbyname2_r("web.example", AF_INET6, &room, text, sizeof text, &into, &why) == 0 && into && into->h_length == 16);
        CHECK(gethostbyname2("web.example", AF_INET) != NULL);
        CHECK(gethostbyname("none.example") == NULL && h_errno == HOST_NOT_FOUND);
        CHECK(gethostbyname_r("none.example", &room, text, sizeof text, &into, &why) == 0 && !into && why == HOST_NOT_FOUND);
        CHECK(getaddrinfo("none.example", "80", NULL, &found) == EAI_NONAME);
        asks.ai_flags = AI_NUMERICHOST;
        CHECK(getaddrinfo("web.example", "80", &asks, &found) == EAI_NONAME);
        /* Addresses stay what they are, and localhost is this machine. */
        CHECK(getaddrinfo("10.9.2.2", "80", NULL, &found) == 0);
        CHECK(((struct sockaddr_in *)found->ai_addr)->sin_addr.s_addr == htonl(0x0a090202));
        freeaddrinfo(found);
        asks = (struct addrinfo){.ai_family = AF_INET};
        CHECK(getaddrinfo("localhost", "80", &asks, &found) == 0);
        CHECK(((struct sockaddr_in *)found->ai_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
        freeaddrinfo(found);
    } else if (!strcmp(way, "names-left-alone")) {
        struct addrinfo *found;
        CHECK(getaddrinfo("web.example", "80", NULL, &found) != 0);
    } else if (!strcmp(way, "early")) {
        int fd = tcp();
        CHECK(connect_to(fd, 82) == 0 && connect_to(fd, 82) == -1 && errno == EISCONN);
        CHECK(write(fd, "hello", 5) == 5);
        echoes(fd);
    } else {
        CHECK(!"a way that is known");
    }
    return 0;
}
