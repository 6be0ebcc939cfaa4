/*
 * dtp.h: the names of the code that was published with the Cedos paper, for programs written against it. Two differ in what they take: dtp_socket took
 * nothing, and flow and host ids are longer than they were.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef DTP_H
#define DTP_H

#include <d2tp.h>
#include <fcntl.h>
#include <netinet/in.h>

#define dtp_socket() d2tp_socket(AF_INET, SOCK_STREAM, 0)
#define dtp_bind d2tp_bind
#define dtp_connect d2tp_connect
#define dtp_listen d2tp_listen
#define dtp_accept d2tp_accept
#define dtp_shutdown d2tp_shutdown
#define dtp_close d2tp_close
#define dtp_recv d2tp_recv
#define dtp_read d2tp_read
#define dtp_send d2tp_send
#define dtp_write d2tp_write
#define dtp_writev d2tp_writev
#define dtp_sendfile d2tp_sendfile
#define dtp_select d2tp_select
#define dtp_poll d2tp_poll
#define dtp_fcntl d2tp_fcntl
#define dtp_ioctl d2tp_ioctl
#define dtp_getsockopt d2tp_getsockopt
#define dtp_setsockopt d2tp_setsockopt
#define dtp_getsockname d2tp_getsockname
#define dtp_getpeername d2tp_getpeername
#define dtp_getflowid d2tp_getflowid
#define dtp_gethostid d2tp_gethostid
#define dtp_isdtpsocket d2tp_isd2tpsocket

#define DTP_F_GETFL F_GETFL
#define DTP_F_SETFL F_SETFL

#define SO_DEADLINE D2TP_SO_DEADLINE
/* 32 bits, where D2TP_SO_ESIZE has 64: pass a uint64_t. */
#define SO_BLOCKSIZE D2TP_SO_ESIZE
#define SO_RCVLOBUF D2TP_SO_RCVBUFTH
#define SO_WIFIONLY D2TP_SO_WIFIONLY

#endif
