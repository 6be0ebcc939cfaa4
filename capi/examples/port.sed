# Ports a program from BSD sockets to d2tp: sed -f port.sed program.c > ported.c
s/^#include <sys\/socket\.h>$/#include <d2tp.h>/
s/\b\(socket\|bind\|connect\|listen\|accept\|recv\|read\|send\|write\|writev\|sendfile\|select\|poll\|fcntl\|ioctl\|getsockopt\|setsockopt\|getsockname\|getpeername\|shutdown\|close\)(/d2tp_\1(/g
