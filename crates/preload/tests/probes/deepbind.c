// A library opened with RTLD_DEEPBIND, or by dlmopen, uses connections of the program: `deepbind LIBRARY WAY`.
#include "probe.h"
#include <dlfcn.h>

typedef ssize_t (*receive_function)(int, void *, size_t);
typedef ssize_t (*send_function)(int, const void *, size_t);

int main(int count, char **arguments) {
    if (count != 3) return 2;
    start_server();
    int fd = connected_by_ring(), late;
    char bytes[64];
    void *library = !strcmp(arguments[2], "dlmopen")
        ? dlmopen(LM_ID_NEWLM, arguments[1], RTLD_NOW)
        : dlopen(arguments[1], RTLD_NOW | RTLD_DEEPBIND);
    if (!library) {
        printf("%s\n", dlerror());
        return 2;
    }
    receive_function receive = (receive_function)dlsym(library, "library_receive");
    send_function transmit = (send_function)dlsym(library, "library_send");
    for (int round = 0; round < 5; round++) {
        if (write(fd, "by the program", 14) != 14) fail("write");
        printf("received %zd\n", receive(fd, bytes, 14));
        printf("sent %zd\n", transmit(fd, "by the library", 14));
        printf("received %zd\n", read(fd, bytes, 14));
    }
    late = connected();
    printf("exchanges %d\n", exchange(late, EXCHANGES));
    if (write(late, "by the program", 14) != 14) fail("write");
    printf("received %zd\n", receive(late, bytes, 14));
    printf("relative: %s\n", dlopen("liblevada-none.so", RTLD_NOW) ? "found" : dlerror());
    stop_server();
    return 0;
}
