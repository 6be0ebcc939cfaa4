/*
 * Loaded into a program (LD_PRELOAD) by `hoop run`: TCP connections that the program makes go to the agent (crates/relay, agent.rs), a Unix socket at HOOP_RUN_SOCKET, and
 * from there as flows. The program's descriptor becomes that connection, so all that works on sockets works on it as before; what asks about addresses or sets options of
 * TCP and IP is answered here. Loopback, and all that is not TCP, is left alone.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Descriptors below this are remembered; who has more gets addresses of zeroes for those. */
#define REMEMBERED 4096

#define REAL(name) ((__typeof__(&name))real(#name))

/* What a descriptor's program believes to be connected to, and from which family's address. */
static struct sockaddr_storage peers[REMEMBERED];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

static bool agent(struct sockaddr_un *address) {
    const char *path = getenv("HOOP_RUN_SOCKET");
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (!path || strlen(path) >= sizeof address->sun_path) return false;
    strcpy(address->sun_path, path);
    return true;
}

/* Tells `hoop run` that this is loaded: where it is not, as in static programs, connections go past it. */
__attribute__((constructor)) static void tell_loaded(void) {
    struct sockaddr_un at;
    char path[sizeof at.sun_path + sizeof ".loaded"];
    if (!agent(&at)) return;
    snprintf(path, sizeof path, "%s.loaded", at.sun_path);
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0) close(file);
}

/* Whether a descriptor is a connection to the agent. */
static bool is_carried(int fd) {
    struct sockaddr_un mine, peer;
    socklen_t len = sizeof peer;
    int before = errno;
    memset(&peer, 0, sizeof peer);
    bool carried = agent(&mine) && REAL(getpeername)(fd, (struct sockaddr *)&peer, &len) == 0 && peer.sun_family == AF_UNIX
        && strncmp(peer.sun_path, mine.sun_path, sizeof peer.sun_path) == 0;
    errno = before;
    return carried;
}

/* `HOST:PORT\n` of an address that is to be carried; 0: it is not. */
static int destination(const struct sockaddr *address, socklen_t len, char *line, size_t room) {
    char host[INET6_ADDRSTRLEN];
    if (address->sa_family == AF_INET && len >= sizeof(struct sockaddr_in)) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
        uint32_t bits = ntohl(v4->sin_addr.s_addr);
        if (bits == 0 || bits >> 24 == 127 || !inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host)) return 0;
        return snprintf(line, room, "%s:%u\n", host, ntohs(v4->sin_port));
    }
    if (address->sa_family == AF_INET6 && len >= sizeof(struct sockaddr_in6)) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
        const uint8_t *octets = v6->sin6_addr.s6_addr;
        bool mapped_loopback = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && octets[12] == 127;
        if (IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) || IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr) || IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) || mapped_loopback) return 0;
        if (!inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host)) return 0;
        return snprintf(line, room, "[%s]:%u\n", host, ntohs(v6->sin6_port));
    }
    return 0;
}

int connect(int fd, const struct sockaddr *address, socklen_t len) {
    char line[80];
    struct sockaddr_un at;
    int type = 0, written = address ? destination(address, len, line, sizeof line) : 0;
    socklen_t type_len = sizeof type;
    if (written <= 0 || !agent(&at) || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) || type != SOCK_STREAM || is_carried(fd))
        return REAL(connect)(fd, address, len);
    int carried = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (carried < 0) return -1;
    int flags = fcntl(fd, F_GETFL), descriptor_flags = fcntl(fd, F_GETFD);
    bool ready = flags >= 0 && descriptor_flags >= 0 && REAL(connect)(carried, (struct sockaddr *)&at, sizeof at) == 0
        && write(carried, line, written) == written && fcntl(carried, F_SETFL, flags) == 0
        && dup3(carried, fd, descriptor_flags & FD_CLOEXEC ? O_CLOEXEC : 0) == fd;
    int why = errno;
    close(carried);
    if (!ready) {
        /* The agent is gone: as a network is that is down. */
        errno = why == EINTR ? EINTR : ENETDOWN;
        return -1;
    }
    if (fd < REMEMBERED) {
        pthread_mutex_lock(&lock);
        memset(&peers[fd], 0, sizeof peers[fd]);
        memcpy(&peers[fd], address, len < sizeof peers[fd] ? len : sizeof peers[fd]);
        pthread_mutex_unlock(&lock);
    }
    return 0;
}

/* An address of the family that the program has used; its own is not known. */
static int answer(int fd, bool peer, struct sockaddr *address, socklen_t *len) {
    struct sockaddr_storage known = {.ss_family = AF_INET};
    if (fd < REMEMBERED) {
        pthread_mutex_lock(&lock);
        if (peers[fd].ss_family) known = peers[fd];
        pthread_mutex_unlock(&lock);
    }
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
    if (is_of_the_network(level) && is_carried(fd)) {
        memset(value, 0, *len);
        return 0;
    }
    return REAL(getsockopt)(fd, level, name, value, len);
}
