/*
 * d2tp.h: flows as sockets. A flow is a byte stream that outlives the connections that carry it: changes of address, hours without a network.
 *
 * Each function is what its BSD counterpart is and sets errno as that does; d2tp(7) tells what is different. Descriptors are the kernel's, and
 * work in poll, epoll, select, read, write and sendfile as any other's. For Linux with glibc, on x86-64, where it is tested; link with -ld2tp.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef D2TP_H
#define D2TP_H

#include <poll.h>
#include <stdint.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Options, at SOL_SOCKET, beside those that sockets have. */

/* int: in so many seconds the flow should be done; then it ends with ETIMEDOUT, at the accepting end a minute later. 0: no such time. Of the
 * connecting end. */
#define D2TP_SO_DEADLINE 0x4401
/* uint64_t: how many bytes this end will send; 0: not said. Told to the other end; nothing is decided by it yet. */
#define D2TP_SO_ESIZE 0x4402
/* struct d2tp_rcvbufth; EINVAL unless low < high. */
#define D2TP_SO_RCVBUFTH 0x4403
/* int: no other network than Wi-Fi is used. Before connect. */
#define D2TP_SO_WIFIONLY 0x4404
/* A name, as with SO_BINDTODEVICE: the interface that is used, and no other; ENODEV if there is none. Before connect. */
#define D2TP_SO_BINDTODEVICE 0x4405

/* Once `high` bytes wait to be read, no more are asked for until only `low` do. The carrier stays up meanwhile, and pings
 * every 20 seconds or so. */
struct d2tp_rcvbufth {
    uint32_t high;
    uint32_t low;
};

/* The file about the server that flows are opened to, or about this server: instead of the variables D2TP_DEVICE and D2TP_SERVER of the
 * environment. EBUSY once one is in use. */
int d2tp_setup(const char *device_file);
int d2tp_setup_server(const char *server_file);

int d2tp_socket(int domain, int type, int protocol);
int d2tp_bind(int fd, const struct sockaddr *address, socklen_t len);
int d2tp_connect(int fd, const struct sockaddr *address, socklen_t len);
int d2tp_listen(int fd, int backlog);
int d2tp_accept(int fd, struct sockaddr *address, socklen_t *len);
int d2tp_accept4(int fd, struct sockaddr *address, socklen_t *len, int flags);
int d2tp_shutdown(int fd, int how);

ssize_t d2tp_recv(int fd, void *bytes, size_t len, int flags);
ssize_t d2tp_send(int fd, const void *bytes, size_t len, int flags);
/* As of TCP: no addresses, and nothing comes or goes beside the bytes. */
ssize_t d2tp_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t d2tp_sendmsg(int fd, const struct msghdr *message, int flags);

/* These take any descriptor, as their counterparts do. */
ssize_t d2tp_read(int fd, void *bytes, size_t len);
ssize_t d2tp_readv(int fd, const struct iovec *parts, int count);
ssize_t d2tp_write(int fd, const void *bytes, size_t len);
ssize_t d2tp_writev(int fd, const struct iovec *parts, int count);
ssize_t d2tp_sendfile(int out_fd, int in_fd, off_t *offset, size_t count);
int d2tp_close(int fd);
int d2tp_select(int count, fd_set *read, fd_set *write, fd_set *except, struct timeval *timeout);
int d2tp_poll(struct pollfd *polled, nfds_t count, int timeout);

/* As fcntl(fd, command, ...) and ioctl(fd, request, ...): the macros below let the argument be left out, or be an int or a pointer. */
int d2tp_fcntl(int fd, int command, long argument);
int d2tp_ioctl(int fd, unsigned long request, long argument);
#define D2TP_THREE_(call, fd, request, argument, ...) (call)((fd), (request), (long)(argument))
#define d2tp_fcntl(...) D2TP_THREE_(d2tp_fcntl, __VA_ARGS__, 0, 0)
#define d2tp_ioctl(...) D2TP_THREE_(d2tp_ioctl, __VA_ARGS__, 0, 0)

int d2tp_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int d2tp_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int d2tp_getsockname(int fd, struct sockaddr *address, socklen_t *len);
int d2tp_getpeername(int fd, struct sockaddr *address, socklen_t *len);

/* The flow's name: 64 bits, unique with the host, which is 20 bytes that a device drew for one server. ENOTCONN before there is a flow. */
int d2tp_getflowid(int fd, uint64_t *id);
int d2tp_gethostid(int fd, unsigned char *id);

/* 1 for a descriptor of this library, else 0. */
int d2tp_isd2tpsocket(int fd);

#ifdef __cplusplus
}
#endif

#endif
