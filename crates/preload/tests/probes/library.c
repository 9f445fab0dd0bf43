// A library that is opened with RTLD_DEEPBIND, as extensions of PHP are: it binds to libc.
#include <sys/types.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t library_receive(int fd, void *bytes, size_t length) { return recv(fd, bytes, length, MSG_WAITALL); }

ssize_t library_send(int fd, const void *bytes, size_t length) { return send(fd, bytes, length, 0); }
