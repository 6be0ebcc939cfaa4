# Ports a program from BSD sockets to d2tp: sed -f port.sed program.c > ported.c
s/^\([[:space:]]*#[[:space:]]*include[[:space:]]*\)<sys\/socket\.h>/\1<d2tp.h>/
s/\b\(socket\|bind\|connect\|listen\|accept\|accept4\|recv\|recvmsg\|read\|readv\|send\|sendmsg\|write\|writev\|sendfile\|select\|poll\|fcntl\|ioctl\|getsockopt\|setsockopt\|getsockname\|getpeername\|shutdown\|close\)\([[:space:]]*(\)/d2tp_\1\2/g
