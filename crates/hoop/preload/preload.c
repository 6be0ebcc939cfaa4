/*
 * Loaded into a program (LD_PRELOAD) by `hoop run`: TCP connections that the program makes go to the agent (crates/relay, preload.rs), a Unix socket at HOOP_RUN_SOCKET, and
 * from there as flows. The program's descriptor becomes that connection, so all that works on sockets works on it as before; what asks about addresses or sets options of
 * TCP and IP is answered here. Loopback, link-local addresses and all that is not TCP are left alone.
 *
 * With HOOP_RUN_REMOTE_DNS names are left to the relay: the agent gives an address that stands for a name, and knows it again when the program connects to it (names.rs).
 *
 * A connection is made once the relay has reached where the program wants to go. Until then its socket is full, and so not writable, of bytes that the agent takes out when it is
 * made. If it fails the agent breaks it off: it is readable, writable and has an error, as TCP would be, and which error that is the agent is asked (results.rs). With
 * HOOP_RUN_EARLY a connection is made at once.
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
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* What sendmmsg and recvmmsg take: glibc has it signed, musl has not. */
#ifdef __GLIBC__
typedef int mmsg_flags;
#else
typedef unsigned int mmsg_flags;
#endif

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

/* Half of a connection's send buffer, in pages (the kernel doubles it): with pages of 4 KiB what Linux gives by default. The agent leaves the last byte that came in the socket. The
 * whole piece that it came in counts as waiting, and must hold up nobody who wants to write: it may be a quarter of the buffer. What is written comes in pieces of less than 13 pages. */
#define SEND_PAGES 26

/* What is sent without copying (`sendfile`, `splice`) comes in pieces of up to 17 pages, and no larger than what is sent at once: so that is less than a quarter of the buffer. */
#define UNCOPIED_BYTES 32768

/* Behind the agent's path: where it is asked how an attempt to connect has ended. */
#define ASKED ".asked"

/* How it is asked, and the answer to what it does not know (crates/relay, results.rs). */
#define ASK_NOW '?'
#define ASK_END 'w'
#define ASK_AGAIN 'c'
#define ASK_NAME 'n'
#define UNKNOWN (-1)

/* Sets of epoll that one descriptor is moved within; more forget it. */
#define SETS_MAX 16

/* The agent's address; its family is 0 where there is none. */
static struct sockaddr_un agent;

/* What its socket is called, by its own account: its path may lead there by a link. */
static char bound[sizeof agent.sun_path];

/* Where it is asked. */
static struct sockaddr_un asked;

/* Connections are made at once. */
static bool is_early;

/* Names are looked up by the relay. */
static bool is_remote_dns;

/* What other users say to the agent (root's programs become others): a space and the key, or nothing. */
static char key[1 + 32 + 1];

/* Whether this process has put a socket into a set of epoll that was not connected. */
static atomic_bool is_watched;

static struct {
    __typeof__(&connect) connect;
    __typeof__(&epoll_ctl) epoll_ctl;
    __typeof__(&getaddrinfo) getaddrinfo;
    __typeof__(&gethostbyname) gethostbyname;
    __typeof__(&gethostbyname2) gethostbyname2;
    __typeof__(&gethostbyname_r) gethostbyname_r;
    __typeof__(&gethostbyname2_r) gethostbyname2_r;
    __typeof__(&getpeername) getpeername;
    __typeof__(&getsockname) getsockname;
    __typeof__(&getsockopt) getsockopt;
    __typeof__(&setsockopt) setsockopt;
    __typeof__(&sendto) sendto;
    __typeof__(&sendmsg) sendmsg;
    __typeof__(&recvfrom) recvfrom;
    __typeof__(&recvmsg) recvmsg;
    __typeof__(&recvmmsg) recvmmsg;
    __typeof__(&sendfile) sendfile;
    __typeof__(&splice) splice;
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
    real.getaddrinfo = next("getaddrinfo");
    real.gethostbyname = next("gethostbyname");
    real.gethostbyname2 = next("gethostbyname2");
    real.gethostbyname_r = next("gethostbyname_r");
    real.gethostbyname2_r = next("gethostbyname2_r");
    real.getpeername = next("getpeername");
    real.getsockname = next("getsockname");
    real.getsockopt = next("getsockopt");
    real.setsockopt = next("setsockopt");
    real.sendto = next("sendto");
    real.sendmsg = next("sendmsg");
    real.sendfile = next("sendfile");
    real.splice = next("splice");
    real.epoll_ctl = next("epoll_ctl");
    real.recvfrom = next("recvfrom");
    real.recvmsg = next("recvmsg");
    real.recvmmsg = next("recvmmsg");
    if (path && *path && strlen(path) < sizeof agent.sun_path - strlen(ASKED)) {
        strcpy(agent.sun_path, path);
        strcpy(asked.sun_path, path);
        strcat(asked.sun_path, ASKED);
        const char *peer = getenv("HOOP_RUN_PEER");
        strcpy(bound, peer && strlen(peer) < sizeof bound ? peer : path);
        agent.sun_family = asked.sun_family = AF_UNIX;
    }
    is_early = getenv("HOOP_RUN_EARLY") != NULL;
    is_remote_dns = getenv("HOOP_RUN_REMOTE_DNS") != NULL;
    const char *said = getenv("HOOP_RUN_KEY");
    if (said && strlen(said) == sizeof key - 2) {
        key[0] = ' ';
        strcpy(key + 1, said);
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
        && strncmp(peer.sun_path, bound, sizeof peer.sun_path) == 0;
    errno = before;
    return carried;
}

/* Loopback's, this network's, link-local ones (RFC 3927), and what is no single machine's: they mean something here alone. */
static bool is_here(uint32_t bits) {
    return bits >> 24 == 0 || bits >> 24 == 127 || bits >> 16 == 0xa9fe || bits >> 28 >= 14;
}

/* `HOST:PORT` of an address that is to be carried; 0: it is not. */
static int destination(const struct sockaddr *address, socklen_t len, char *line, size_t room) {
    char host[INET6_ADDRSTRLEN];
    if (len < sizeof address->sa_family) return 0;
    if (address->sa_family == AF_INET && len >= sizeof(struct sockaddr_in)) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
        if (is_here(ntohl(v4->sin_addr.s_addr)) || !inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host)) return 0;
        return snprintf(line, room, "%s:%u", host, ntohs(v4->sin_port));
    }
    if (address->sa_family == AF_INET6 && len >= sizeof(struct sockaddr_in6)) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
        const struct in6_addr *ip = &v6->sin6_addr;
        uint32_t last;
        memcpy(&last, ip->s6_addr + 12, sizeof last);
        if (IN6_IS_ADDR_V4MAPPED(ip) && is_here(ntohl(last))) return 0;
        if (IN6_IS_ADDR_LOOPBACK(ip) || IN6_IS_ADDR_UNSPECIFIED(ip) || IN6_IS_ADDR_LINKLOCAL(ip) || IN6_IS_ADDR_MULTICAST(ip)) return 0;
        if (!inet_ntop(AF_INET6, ip, host, sizeof host)) return 0;
        return snprintf(line, room, "[%s]:%u", host, ntohs(v6->sin6_port));
    }
    return 0;
}

/* Gives a connection the name that says what its program is connected to. */
static bool name(int fd, const struct sockaddr *address, unsigned char unlike[8]) {
    struct sockaddr_un named = {.sun_family = AF_UNIX};
    struct name *begins = (struct name *)named.sun_path;
    size_t len = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    memcpy(begins->is, NAME, sizeof begins->is);
    memcpy(named.sun_path + sizeof *begins, address, len);
    for (int tries = 0; tries < NAME_TRIES; tries++) {
        if (getrandom(begins->unlike, sizeof begins->unlike, 0) != sizeof begins->unlike) return false;
        memcpy(unlike, begins->unlike, sizeof begins->unlike);
        if (bind(fd, (struct sockaddr *)&named, offsetof(struct sockaddr_un, sun_path) + sizeof *begins + len) == 0) return true;
        if (errno != EADDRINUSE) return false;
    }
    return false;
}

/* What a connection's name says: the number of its attempt, and the address that the program asked for. */
static bool named(int fd, struct name *begins, struct sockaddr_storage *known) {
    struct sockaddr_un own;
    socklen_t len = sizeof own;
    size_t before = offsetof(struct sockaddr_un, sun_path) + sizeof *begins;
    memset(&own, 0, sizeof own);
    if (REAL(getsockname)(fd, (struct sockaddr *)&own, &len) != 0 || len <= before) return false;
    memcpy(begins, own.sun_path, sizeof *begins);
    if (memcmp(begins->is, NAME, sizeof begins->is) != 0) return false;
    memcpy(known, own.sun_path + sizeof *begins, len - before);
    return true;
}

/* The address that the program asked for. */
static struct sockaddr_storage asked_for(int fd) {
    struct sockaddr_storage known = {.ss_family = AF_INET};
    struct name begins;
    named(fd, &begins, &known);
    return known;
}

/* A signal does not break that off: the agent takes it at once, and a program that was told EINTR would wait for a connection that nobody makes (POSIX: it "shall be
 * established asynchronously"). */
static bool reach(int fd, const struct sockaddr_un *where) {
    while (REAL(connect)(fd, (const struct sockaddr *)where, sizeof *where) != 0)
        if (errno != EINTR) return false;
    return true;
}

static bool send_all(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) return false;
        if (sent > 0) {
            data += sent;
            size -= sent;
        }
    }
    return true;
}

/* The longest name of a host that is asked for; none is longer (RFC 1035, section 2.3.4). */
#define NAME_MAX_BYTES 255

/*
 * Asks the agent: about the attempt to connect with this number, or for the address of a name. Where an attempt ends is waited for as `connect` waits: a signal whose handler is to
 * restart calls does not end that. False, with errno: EINTR; EAGAIN after `patience`; ENETDOWN if there is no agent any more.
 */
static bool ask_agent(char how, const unsigned char number[8], const char *host, const struct timeval *patience, int *answer) {
    char question[1 + 8 + sizeof key + NAME_MAX_BYTES] = {how};
    size_t asks = 1 + 8;
    int before = errno;
    errno = ENETDOWN;
    memcpy(question + 1, number, 8);
    if (*key) {
        memcpy(question + asks, key + 1, sizeof key - 2);
        asks += sizeof key - 2;
    }
    memcpy(question + asks, host, strlen(host));
    asks += strlen(host);
    int asking = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (asking < 0) return false;
    ssize_t told = -1;
    int error = ENETDOWN;
    if (reach(asking, &asked) && send_all(asking, question, asks)) {
        if (patience) real.setsockopt(asking, SOL_SOCKET, SO_RCVTIMEO, patience, sizeof *patience);
        do told = recv(asking, answer, sizeof *answer, 0);
        while (told < 0 && errno == EINTR && how != ASK_END);
        if (told < 0 && (errno == EINTR || errno == EAGAIN)) error = errno;
    }
    close(asking);
    errno = told == sizeof *answer ? before : error;
    return told == sizeof *answer;
}

/* Asks the agent how an attempt to connect is, or ends. */
static bool ask(int fd, char how, const struct timeval *patience, int *answer) {
    struct name begins;
    struct sockaddr_storage known;
    if (named(fd, &begins, &known)) return ask_agent(how, begins.unlike, "", patience, answer);
    errno = ENETDOWN;
    return false;
}

/* Whether a name is the relay's to look up. Those without a dot and those in .local are of this network, and localhost is this machine. */
static bool is_remote(const char *host) {
    static const char *const here[] = {".local", ".localhost"};
    struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST}, *found;
    begin();
    if (!is_remote_dns || !agent.sun_family || !host) return false;
    size_t len = strlen(host);
    while (len > 0 && host[len - 1] == '.') len--;
    if (!memchr(host, '.', len)) return false;
    for (size_t i = 0; i < sizeof here / sizeof *here; i++) {
        size_t ends = strlen(here[i]);
        if (len >= ends && strncasecmp(host + len - ends, here[i], ends) == 0) return false;
    }
    if (real.getaddrinfo(host, NULL, &numeric, &found) != 0) return true;
    freeaddrinfo(found);
    return false;
}

/* The address that stands for a name, as text. 0, or what `getaddrinfo` says then. */
static int stand_in(const char *host, int family, char text[INET6_ADDRSTRLEN]) {
    static const char MAPPED[] = "::ffff:";
    unsigned char number[8] = {strlen(host)};
    size_t begins = family == AF_INET6 ? strlen(MAPPED) : 0;
    int address;
    if (strlen(host) > NAME_MAX_BYTES) return EAI_NONAME;
    if (!ask_agent(ASK_NAME, number, host, NULL, &address)) return EAI_AGAIN;
    if (address == 0) return EAI_NONAME;
    memcpy(text, MAPPED, begins);
    return inet_ntop(AF_INET, &address, text + begins, INET6_ADDRSTRLEN - begins) ? 0 : EAI_SYSTEM;
}

/* The address that stands for a name is looked up in its place. It has no canonical name: only the relay knows that. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    struct addrinfo numeric = {0};
    char address[INET6_ADDRSTRLEN];
    if (!is_remote(host)) return REAL(getaddrinfo)(host, service, hints, found);
    if (hints) numeric = *hints;
    if (numeric.ai_flags & AI_NUMERICHOST) return EAI_NONAME;
    int failed = stand_in(host, numeric.ai_family, address);
    if (failed) return failed;
    /* Whether this machine has an address of the family is the relay's affair, too. */
    numeric.ai_flags = (numeric.ai_flags & ~(AI_ADDRCONFIG | AI_V4MAPPED | AI_ALL | AI_CANONNAME)) | AI_NUMERICHOST;
    failed = real.getaddrinfo(address, service, &numeric, found);
    /* musl says one all the same, within what it has allocated. */
    for (struct addrinfo *one = failed ? NULL : *found; one; one = one->ai_next) one->ai_canonname = NULL;
    return failed;
}

/* What is looked up in a name's place: the name itself, or the text of an address. NULL: there is none, and `h_errno` says why. */
static const char *in_place_of(const char *host, int family, char text[INET6_ADDRSTRLEN], int *h_error) {
    if (!is_remote(host)) return host;
    int failed = stand_in(host, family, text);
    if (failed) *h_error = failed == EAI_NONAME ? HOST_NOT_FOUND : TRY_AGAIN;
    return failed ? NULL : text;
}

/* What older programs call. What they get is called as its address is written. */
struct hostent *gethostbyname(const char *host) {
    char text[INET6_ADDRSTRLEN];
    const char *sought = in_place_of(host, AF_INET, text, &h_errno);
    return sought ? REAL(gethostbyname)(sought) : NULL;
}

struct hostent *gethostbyname2(const char *host, int family) {
    char text[INET6_ADDRSTRLEN];
    const char *sought = in_place_of(host, family, text, &h_errno);
    return sought ? REAL(gethostbyname2)(sought, family) : NULL;
}

int gethostbyname_r(const char *host, struct hostent *entry, char *room, size_t size, struct hostent **found, int *h_error) {
    char text[INET6_ADDRSTRLEN];
    const char *sought = in_place_of(host, AF_INET, text, h_error);
    if (sought) return REAL(gethostbyname_r)(sought, entry, room, size, found, h_error);
    *found = NULL;
    return *h_error == HOST_NOT_FOUND ? 0 : EAGAIN;
}

int gethostbyname2_r(const char *host, int family, struct hostent *entry, char *room, size_t size, struct hostent **found, int *h_error) {
    char text[INET6_ADDRSTRLEN];
    const char *sought = in_place_of(host, family, text, h_error);
    if (sought) return REAL(gethostbyname2_r)(sought, family, entry, room, size, found, h_error);
    *found = NULL;
    return *h_error == HOST_NOT_FOUND ? 0 : EAGAIN;
}

/* Whether the relay has reached where a connection goes: one that is full or over may never have been made. */
static bool is_made(int fd) {
    struct pollfd now = {fd, POLLOUT, 0};
    int before = errno, answer;
    bool made = is_early || (poll(&now, 1, 0) == 1 && now.revents == POLLOUT) || !ask(fd, ASK_NOW, NULL, &answer);
    /* What the agent does not know is over for long, or was not seen yet. */
    if (!made) made = answer == UNKNOWN ? (now.revents & (POLLHUP | POLLERR)) != 0 : answer == 0;
    errno = before;
    return made;
}

/* What was set before there was a connection, and means the same for every kind of socket, or is asked for again: a Unix socket keeps what it has no use for. */
static void keep_options(int from, int to) {
    static const int kept[] = {SO_RCVTIMEO, SO_SNDTIMEO, SO_KEEPALIVE, SO_LINGER};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        struct timeval longest;
        socklen_t len = sizeof longest;
        if (real.getsockopt(from, SOL_SOCKET, kept[i], &longest, &len) == 0) real.setsockopt(to, SOL_SOCKET, kept[i], &longest, len);
    }
}

/* A set of epoll, and what it is told of a descriptor. */
struct watching {
    int set;
    struct epoll_event event;
};

/* What a set waits for of a descriptor, as the kernel tells it (proc(5), fdinfo). */
static bool waits_for(int set, int fd, struct epoll_event *event) {
    char path[48], text[1024];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", set);
    int info = open(path, O_RDONLY | O_CLOEXEC);
    if (info < 0) return false;
    bool found = false;
    ssize_t more;
    for (size_t len = 0; !found && len < sizeof text - 1 && (more = read(info, text + len, sizeof text - 1 - len)) > 0;) {
        char *line = text, *end;
        text[len += more] = 0;
        for (; !found && (end = strchr(line, '\n')); line = end + 1) {
            int watched;
            unsigned int events;
            unsigned long long data;
            *end = 0;
            if (sscanf(line, "tfd: %d events: %x data: %llx", &watched, &events, &data) != 3 || watched != fd) continue;
            *event = (struct epoll_event){.events = events, .data.u64 = data};
            found = true;
        }
        len -= line - text;
        memmove(text, line, len);
    }
    close(info);
    return found;
}

/* The sets that a descriptor is in, out of which it is taken. There is no list of them here: the kernel has one. */
static int leave_sets(int fd, struct watching *sets) {
    char entries[2048], link[32];
    int count = 0;
    if (!is_watched) return 0;
    int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return 0;
    for (long len; count < SETS_MAX && (len = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;) {
        for (long at = 0; at < len && count < SETS_MAX;) {
            const char *entry = entries + at + 19; /* struct linux_dirent64: inode, offset, length, kind, name */
            unsigned short whole;
            memcpy(&whole, entries + at + 16, sizeof whole);
            at += whole;
            ssize_t is = readlinkat(folder, entry, link, sizeof link);
            if (is != strlen("anon_inode:[eventpoll]") || memcmp(link, "anon_inode:[eventpoll]", is) != 0) continue;
            struct watching found = {.set = atoi(entry)};
            if (waits_for(found.set, fd, &found.event) && real.epoll_ctl(found.set, EPOLL_CTL_DEL, fd, NULL) == 0) sets[count++] = found;
        }
    }
    close(folder);
    return count;
}

/* Has a descriptor lead to another socket, which is closed, and keep its flags and the sets of epoll that it is in. */
static bool replace(int fd, int other) {
    struct watching sets[SETS_MAX];
    int flags = fcntl(fd, F_GETFL), descriptor_flags = fcntl(fd, F_GETFD);
    bool done = flags >= 0 && descriptor_flags >= 0 && fcntl(other, F_SETFL, flags) == 0;
    if (done) {
        keep_options(fd, other);
        int count = leave_sets(fd, sets);
        done = dup3(other, fd, descriptor_flags & FD_CLOEXEC ? O_CLOEXEC : 0) == fd;
        while (count-- > 0) real.epoll_ctl(sets[count].set, EPOLL_CTL_ADD, fd, &sets[count].event);
    }
    close(other);
    return done;
}

/* A connection that was not made, or is to be none any more, becomes a socket that may connect again. */
static bool renew(int fd) {
    int before = errno, tcp = socket(asked_for(fd).ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool done = tcp >= 0 && replace(fd, tcp);
    if (done) errno = before;
    return done;
}

/* Waits until a connection is made or has failed. A signal or a timeout leaves it to itself. */
static int wait_for(int fd) {
    struct timeval patience = {0, 0};
    socklen_t len = sizeof patience;
    int answer;
    real.getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, &len);
    if (!ask(fd, ASK_END, &patience, &answer)) {
        if (errno == EAGAIN) errno = EINPROGRESS;
        return -1;
    }
    if (answer == 0) return 0;
    renew(fd);
    errno = answer;
    return -1;
}

/* `connect` of what is being connected, or is connected, or has failed to be. */
static int connect_again(int fd) {
    struct pollfd now = {fd, POLLOUT, 0};
    int answer, error = 0, flags = fcntl(fd, F_GETFL);
    socklen_t len = sizeof error;
    bool is_over = poll(&now, 1, 0) == 1 && now.revents & (POLLHUP | POLLERR);
    if (is_early || !ask(fd, ASK_AGAIN, NULL, &answer)) answer = EISCONN;
    if (answer == UNKNOWN) answer = is_over ? EISCONN : EALREADY;
    if (answer == EALREADY && !(flags & O_NONBLOCK)) return wait_for(fd);
    if (answer == 0) return 0;
    if (answer != EISCONN && answer != EALREADY) {
        /* An error is told once (Linux, `__inet_stream_connect`). */
        if (real.getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0) answer = ECONNABORTED;
        renew(fd);
    }
    errno = answer;
    return -1;
}

/* Has the agent connect to where the program wants to go, and fills the connection until it is. */
static bool begin_connecting(int carried, const struct sockaddr *address, const char *destination) {
    static char nothing[64 * 1024];
    char line[160];
    unsigned char unlike[8];
    int room = SEND_PAGES * sysconf(_SC_PAGESIZE);
    socklen_t room_len = sizeof room;
    if (!name(carried, address, unlike)) return false;
    real.setsockopt(carried, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    if (is_early) {
        int len = snprintf(line, sizeof line, "%s%s\n", destination, key);
        return reach(carried, &agent) && send_all(carried, line, len);
    }
    /* A Unix socket is writable while no more than a quarter of its room is taken (Linux, `unix_writable`). */
    if (real.getsockopt(carried, SOL_SOCKET, SO_SNDBUF, &room, &room_len) != 0) return false;
    size_t filled = (size_t)room / 4 + 1;
    int len = snprintf(line, sizeof line, "%s %zu ", destination, filled + 1);
    for (size_t i = 0; i < sizeof unlike; i++) len += snprintf(line + len, sizeof line - len, "%02x", unlike[i]);
    len += snprintf(line + len, sizeof line - len, "%s\n", key);
    if (!reach(carried, &agent) || !send_all(carried, line, len)) return false;
    /* An agent that has its answer before this is filled closes it: the answer is asked for all the same. */
    for (size_t rest = filled, some; rest > 0; rest -= some) {
        some = rest < sizeof nothing ? rest : sizeof nothing;
        if (!send_all(carried, nothing, some)) return true;
    }
    /* The agent leaves the last byte, which is not to hold up the others' room: a piece of its own. */
    send_all(carried, nothing, 1);
    return true;
}

int connect(int fd, const struct sockaddr *address, socklen_t len) {
    char line[80];
    int type = 0, domain = AF_UNSPEC, protocol = IPPROTO_TCP, written = address ? destination(address, len, line, sizeof line) : 0;
    socklen_t type_len = sizeof type, domain_len = sizeof domain, protocol_len = sizeof protocol;
    begin();
    if (address && len >= sizeof address->sa_family && is_carried(fd)) {
        if (address->sa_family == AF_UNSPEC) return renew(fd) ? 0 : -1;
        return connect_again(fd);
    }
    /* SCTP has sockets of the same type. */
    real.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &protocol_len);
    if (written <= 0 || !agent.sun_family || real.getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) || type != SOCK_STREAM || protocol == IPPROTO_SCTP)
        return real.connect(fd, address, len);
    /* The kernel knows which error it is to connect a socket of one family to an address of the other. */
    if (real.getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_len) != 0 || domain != address->sa_family) return real.connect(fd, address, len);
    int carried = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), flags = fcntl(fd, F_GETFL);
    if (carried < 0) return -1;
    if (!begin_connecting(carried, address, line)) {
        close(carried);
        /* The agent is gone: as a network is that is down. */
        errno = ENETDOWN;
        return -1;
    }
    if (!replace(fd, carried)) {
        errno = ENETDOWN;
        return -1;
    }
    if (is_early) return 0;
    if (!(flags & O_NONBLOCK)) return wait_for(fd);
    errno = EINPROGRESS;
    return -1;
}

/* A socket that is put into a set before it is connected has to be moved within it then. */
int epoll_ctl(int set, int act, int fd, struct epoll_event *event) {
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    int before = errno;
    if (act == EPOLL_CTL_ADD && !is_watched && REAL(getpeername)(fd, (struct sockaddr *)&peer, &len) != 0 && errno == ENOTCONN) is_watched = true;
    errno = before;
    return REAL(epoll_ctl)(set, act, fd, event);
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

/*
 * Of a connection of TCP's an address says nothing when it is sent, and none is told when something is read; nor does anything come or go beside the bytes. A Unix socket refuses the one,
 * tells its own, and passes descriptors on.
 */
ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *address, socklen_t len) {
    int opened = open_fast(fd, address, len, &flags);
    if (opened < 0) return -1;
    return opened || (address && is_carried(fd)) ? REAL(sendto)(fd, data, size, flags, NULL, 0) : REAL(sendto)(fd, data, size, flags, address, len);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    int opened = message ? open_fast(fd, message->msg_name, message->msg_namelen, &flags) : 0;
    if (opened < 0) return -1;
    if (!opened && !(message && (message->msg_name || message->msg_control) && is_carried(fd))) return REAL(sendmsg)(fd, message, flags);
    struct msghdr rest = *message;
    rest.msg_name = rest.msg_control = NULL;
    rest.msg_namelen = rest.msg_controllen = 0;
    return REAL(sendmsg)(fd, &rest, flags);
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, mmsg_flags flags) {
    if (!messages || !count || (!(flags & MSG_FASTOPEN) && !is_carried(fd))) return REAL(sendmmsg)(fd, messages, count, flags);
    /* One message is fewer than may be sent, and is no error. */
    ssize_t sent = sendmsg(fd, &messages->msg_hdr, flags);
    if (sent < 0) return -1;
    messages->msg_len = sent;
    return 1;
}

/* A file goes in pieces of which the agent may leave the last byte. */
ssize_t sendfile(int fd, int file, off_t *at, size_t size) {
    size_t sent = 0;
    ssize_t more;
    if (!is_carried(fd)) return REAL(sendfile)(fd, file, at, size);
    do {
        size_t rest = size - sent;
        more = real.sendfile(fd, file, at, rest < UNCOPIED_BYTES ? rest : UNCOPIED_BYTES);
        if (more > 0) sent += more;
    } while (more > 0 && sent < size);
    return sent > 0 ? (ssize_t)sent : more;
}

/* What programs call that take long files everywhere. Where offsets have 32 bits it is another function, and is left alone. */
#ifdef __LP64__
#undef sendfile64
ssize_t sendfile64(int fd, int file, off_t *at, size_t size) {
    return sendfile(fd, file, at, size);
}
#endif

/* A part of what waits in a pipe is fewer bytes than may be moved, and is no error. */
ssize_t splice(int from, off_t *from_at, int to, off_t *to_at, size_t size, unsigned int flags) {
    return REAL(splice)(from, from_at, to, to_at, size > UNCOPIED_BYTES && is_carried(to) ? UNCOPIED_BYTES : size, flags);
}

ssize_t recvfrom(int fd, void *data, size_t size, int flags, struct sockaddr *address, socklen_t *len) {
    if (!address || !len || !is_carried(fd)) return REAL(recvfrom)(fd, data, size, flags, address, len);
    ssize_t read = real.recvfrom(fd, data, size, flags, NULL, NULL);
    if (read >= 0) *len = 0;
    return read;
}

/* What programs call that were built with _FORTIFY_SOURCE. */
ssize_t __recvfrom_chk(int fd, void *data, size_t size, size_t room, int flags, struct sockaddr *address, socklen_t *len) {
    if (size > room) abort();
    return recvfrom(fd, data, size, flags, address, len);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    if (!message || !message->msg_name || !is_carried(fd)) return REAL(recvmsg)(fd, message, flags);
    void *name = message->msg_name;
    message->msg_name = NULL;
    ssize_t read = real.recvmsg(fd, message, flags);
    message->msg_name = name;
    if (read >= 0) message->msg_namelen = 0;
    return read;
}

int recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, mmsg_flags flags, struct timespec *patience) {
    int read = REAL(recvmmsg)(fd, messages, count, flags, patience);
    if (read > 0 && is_carried(fd))
        for (int i = 0; i < read; i++) messages[i].msg_hdr.msg_namelen = 0;
    return read;
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
    if (!is_carried(fd)) return REAL(getpeername)(fd, address, len);
    if (is_made(fd)) return answer(fd, true, address, len);
    errno = ENOTCONN;
    return -1;
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
    /* Its room says whether it is connected. */
    if (level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_SNDBUFFORCE) && is_carried(fd)) return 0;
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
    int done = REAL(getsockopt)(fd, level, name, value, len), answer;
    if (done == 0 && level == SOL_SOCKET && name == SO_ERROR && *len >= sizeof(int) && *(int *)value == ECONNRESET && !is_early && is_carried(fd) && ask(fd, ASK_NOW, NULL, &answer) && answer > 0)
        *(int *)value = answer;
    return done;
}
