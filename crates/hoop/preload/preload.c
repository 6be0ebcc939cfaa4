/*
 * Loaded into a program (LD_PRELOAD) by `hoop run`: TCP connections that the program makes go to the agent (crates/relay, agent.rs), a Unix socket at HOOP_RUN_SOCKET, and
 * from there as flows. The program's descriptor becomes that connection, so all that works on sockets works on it as before; what asks about addresses or sets options of
 * TCP and IP is answered here. Loopback, link-local addresses and all that is not TCP are left alone.
 *
 * There is no lock and no table here. Which address the program asked for is the connection's own name, in the abstract namespace of Unix sockets: it goes where the
 * descriptor goes, through dup, fork and exec. So a child of a program with threads cannot find a lock that nobody will open, and `connect` may be called in a
 * signal's handler, as POSIX has it (POSIX.1-2024, XSH 2.4.3).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A connection's name: a zero, this, a random number that makes it unlike others, and the address as it was asked for. */
#define NAME "hoop-run/"

/* A second random number that is taken already would be a miracle. */
#define NAME_TRIES 4

/* What stands in the name before the address. */
struct name {
    char zero;
    char is[sizeof NAME - 1];
    unsigned char unlike[8];
};

/* The agent's address; its family is 0 where there is none. */
static struct sockaddr_un agent;

static struct {
    __typeof__(&connect) connect;
    __typeof__(&getpeername) getpeername;
    __typeof__(&getsockname) getsockname;
    __typeof__(&getsockopt) getsockopt;
    __typeof__(&setsockopt) setsockopt;
    __typeof__(&sendto) sendto;
    __typeof__(&sendmsg) sendmsg;
    __typeof__(&sendmmsg) sendmmsg;
} real;

static void *next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

/*
 * Looks up what is hidden here, and where the agent is: once, before the program begins, since neither may be done in a signal's handler. Another library's
 * constructor may come before.
 */
__attribute__((constructor(101))) static void begin(void) {
    const char *path = getenv("HOOP_RUN_SOCKET");
    if (real.sendmmsg) return;
    real.connect = next("connect");
    real.getpeername = next("getpeername");
    real.getsockname = next("getsockname");
    real.getsockopt = next("getsockopt");
    real.setsockopt = next("setsockopt");
    real.sendto = next("sendto");
    real.sendmsg = next("sendmsg");
    if (path && *path && strlen(path) < sizeof agent.sun_path) {
        strcpy(agent.sun_path, path);
        agent.sun_family = AF_UNIX;
    }
    real.sendmmsg = next("sendmmsg");
}

#define REAL(name) (begin(), real.name)

/* Tells `hoop run` that this is loaded: where it is not, as in static programs, connections go past it. */
__attribute__((constructor)) static void tell_loaded(void) {
    char path[sizeof agent.sun_path + sizeof ".loaded"];
    if (!agent.sun_family) return;
    snprintf(path, sizeof path, "%s.loaded", agent.sun_path);
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0) close(file);
}

/* Whether a descriptor is a connection to the agent. */
static bool is_carried(int fd) {
    struct sockaddr_un peer;
    socklen_t len = sizeof peer;
    int before = errno;
    memset(&peer, 0, sizeof peer);
    bool carried = REAL(getpeername)(fd, (struct sockaddr *)&peer, &len) == 0 && agent.sun_family && peer.sun_family == AF_UNIX
        && strncmp(peer.sun_path, agent.sun_path, sizeof peer.sun_path) == 0;
    errno = before;
    return carried;
}

/* Loopback's, this network's, link-local ones (RFC 3927), and what is no single machine's: they mean something here alone. */
static bool is_here(uint32_t bits) {
    return bits >> 24 == 0 || bits >> 24 == 127 || bits >> 16 == 0xa9fe || bits >> 28 >= 14;
}

/* `HOST:PORT\n` of an address that is to be carried; 0: it is not. */
static int destination(const struct sockaddr *address, socklen_t len, char *line, size_t room) {
    char host[INET6_ADDRSTRLEN];
    if (len < sizeof address->sa_family) return 0;
    if (address->sa_family == AF_INET && len >= sizeof(struct sockaddr_in)) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
        if (is_here(ntohl(v4->sin_addr.s_addr)) || !inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host)) return 0;
        return snprintf(line, room, "%s:%u\n", host, ntohs(v4->sin_port));
    }
    if (address->sa_family == AF_INET6 && len >= sizeof(struct sockaddr_in6)) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
        const struct in6_addr *ip = &v6->sin6_addr;
        uint32_t last;
        memcpy(&last, ip->s6_addr + 12, sizeof last);
        if (IN6_IS_ADDR_V4MAPPED(ip) && is_here(ntohl(last))) return 0;
        if (IN6_IS_ADDR_LOOPBACK(ip) || IN6_IS_ADDR_UNSPECIFIED(ip) || IN6_IS_ADDR_LINKLOCAL(ip) || IN6_IS_ADDR_MULTICAST(ip)) return 0;
        if (!inet_ntop(AF_INET6, ip, host, sizeof host)) return 0;
        return snprintf(line, room, "[%s]:%u\n", host, ntohs(v6->sin6_port));
    }
    return 0;
}

/* Gives a connection the name that says what its program is connected to. */
static bool name(int fd, const struct sockaddr *address) {
    struct sockaddr_un named = {.sun_family = AF_UNIX};
    struct name *begins = (struct name *)named.sun_path;
    size_t len = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    memcpy(begins->is, NAME, sizeof begins->is);
    memcpy(named.sun_path + sizeof *begins, address, len);
    for (int tries = 0; tries < NAME_TRIES; tries++) {
        if (getrandom(begins->unlike, sizeof begins->unlike, 0) != sizeof begins->unlike) return false;
        if (bind(fd, (struct sockaddr *)&named, offsetof(struct sockaddr_un, sun_path) + sizeof *begins + len) == 0) return true;
        if (errno != EADDRINUSE) return false;
    }
    return false;
}

/* Connects to the agent, and says where the program wants to go. A signal does not break that off: the agent takes it at once, and a program that was told EINTR would wait for
 * a connection that nobody makes (POSIX: it "shall be established asynchronously"). */
static bool reach(int carried, const char *line, int len) {
    while (REAL(connect)(carried, (struct sockaddr *)&agent, sizeof agent) != 0)
        if (errno != EINTR) return false;
    ssize_t said;
    while ((said = send(carried, line, len, MSG_NOSIGNAL)) < 0 && errno == EINTR) {}
    return said == len;
}

/* What was set before there was a connection, and means the same for every kind of socket. */
static void keep_timeouts(int from, int to) {
    static const int kept[] = {SO_RCVTIMEO, SO_SNDTIMEO};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        struct timeval time;
        socklen_t len = sizeof time;
        if (real.getsockopt(from, SOL_SOCKET, kept[i], &time, &len) == 0) real.setsockopt(to, SOL_SOCKET, kept[i], &time, len);
    }
}

int connect(int fd, const struct sockaddr *address, socklen_t len) {
    char line[80];
    int type = 0, protocol = IPPROTO_TCP, written = address ? destination(address, len, line, sizeof line) : 0;
    socklen_t type_len = sizeof type, protocol_len = sizeof protocol;
    begin();
    /* SCTP has sockets of the same type. */
    real.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &protocol_len);
    if (written <= 0 || !agent.sun_family || real.getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) || type != SOCK_STREAM || protocol == IPPROTO_SCTP || is_carried(fd))
        return real.connect(fd, address, len);
    int carried = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (carried < 0) return -1;
    int flags = fcntl(fd, F_GETFL), descriptor_flags = fcntl(fd, F_GETFD);
    bool ready = flags >= 0 && descriptor_flags >= 0 && name(carried, address) && reach(carried, line, written);
    if (ready) keep_timeouts(fd, carried);
    ready = ready
        && fcntl(carried, F_SETFL, flags) == 0 && dup3(carried, fd, descriptor_flags & FD_CLOEXEC ? O_CLOEXEC : 0) == fd;
    close(carried);
    /* The agent is gone: as a network is that is down. */
    if (!ready) errno = ENETDOWN;
    return ready ? 0 : -1;
}

/* TCP Fast Open (RFC 7413): a connection that is made by sending. Whether it was, is not to be, or failed. */
static int open_fast(int fd, const struct sockaddr *address, socklen_t len, int *flags) {
    char line[80];
    if (!(*flags & MSG_FASTOPEN) || !address || destination(address, len, line, sizeof line) <= 0) return 0;
    begin();
    if (!agent.sun_family) return 0;
    if (is_carried(fd)) {
        errno = EISCONN;
        return -1;
    }
    if (connect(fd, address, len) != 0) return -1;
    if (!is_carried(fd)) return 0;
    *flags &= ~MSG_FASTOPEN;
    return 1;
}

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *address, socklen_t len) {
    int opened = open_fast(fd, address, len, &flags);
    if (opened < 0) return -1;
    return opened ? REAL(sendto)(fd, data, size, flags, NULL, 0) : REAL(sendto)(fd, data, size, flags, address, len);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    int opened = message ? open_fast(fd, message->msg_name, message->msg_namelen, &flags) : 0;
    if (opened < 0) return -1;
    if (!opened) return REAL(sendmsg)(fd, message, flags);
    struct msghdr rest = *message;
    rest.msg_name = NULL;
    rest.msg_namelen = 0;
    return REAL(sendmsg)(fd, &rest, flags);
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags) {
    if (!(flags & MSG_FASTOPEN) || !messages || !count) return REAL(sendmmsg)(fd, messages, count, flags);
    ssize_t sent = sendmsg(fd, &messages->msg_hdr, flags);
    if (sent < 0) return -1;
    messages->msg_len = sent;
    return 1;
}

/* The address that the program asked for. */
static struct sockaddr_storage asked_for(int fd) {
    struct sockaddr_storage known = {.ss_family = AF_INET};
    struct sockaddr_un named;
    const struct name *begins = (const struct name *)named.sun_path;
    socklen_t len = sizeof named;
    size_t before = offsetof(struct sockaddr_un, sun_path) + sizeof *begins;
    memset(&named, 0, sizeof named);
    if (REAL(getsockname)(fd, (struct sockaddr *)&named, &len) == 0 && len > before && memcmp(begins->is, NAME, sizeof begins->is) == 0)
        memcpy(&known, named.sun_path + sizeof *begins, len - before);
    return known;
}

/* An address of the family that the program has used; its own is not known. */
static int answer(int fd, bool peer, struct sockaddr *address, socklen_t *len) {
    struct sockaddr_storage known = asked_for(fd);
    socklen_t whole = known.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (!peer) {
        sa_family_t family = known.ss_family;
        memset(&known, 0, sizeof known);
        known.ss_family = family;
    }
    memcpy(address, &known, *len < whole ? *len : whole);
    *len = whole;
    return 0;
}

int getpeername(int fd, struct sockaddr *address, socklen_t *len) {
    return is_carried(fd) ? answer(fd, true, address, len) : REAL(getpeername)(fd, address, len);
}

int getsockname(int fd, struct sockaddr *address, socklen_t *len) {
    return is_carried(fd) ? answer(fd, false, address, len) : REAL(getsockname)(fd, address, len);
}

static bool is_of_the_network(int level) {
    return level == IPPROTO_TCP || level == IPPROTO_IP || level == IPPROTO_IPV6;
}

/* There is no TCP here whose options could be set: whoever wants no delay or a mark gets what there is. */
int setsockopt(int fd, int level, int name, const void *value, socklen_t len) {
    if (is_of_the_network(level) && is_carried(fd)) return 0;
    return REAL(setsockopt)(fd, level, name, value, len);
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *len) {
    if (!value || !len) return REAL(getsockopt)(fd, level, name, value, len);
    if (is_of_the_network(level) && is_carried(fd)) {
        memset(value, 0, *len);
        return 0;
    }
    if (level == SOL_SOCKET && (name == SO_DOMAIN || name == SO_PROTOCOL) && *len >= sizeof(int) && is_carried(fd)) {
        int as_before = name == SO_DOMAIN ? asked_for(fd).ss_family : IPPROTO_TCP;
        memcpy(value, &as_before, sizeof as_before);
        *len = sizeof as_before;
        return 0;
    }
    return REAL(getsockopt)(fd, level, name, value, len);
}
