// SIGIO after ioctl(FIOASYNC), on a connection that is on rings.
#include "probe.h"
#include <sys/ioctl.h>

static volatile sig_atomic_t arrived;

static void note(int number) {
    (void)number;
    arrived = 1;
}

int main(void) {
    start_server();
    int fd = connected_by_ring(), on = 1;
    signal(SIGIO, note);
    if (fcntl(fd, F_SETOWN, getpid()) || ioctl(fd, FIOASYNC, &on)) fail("FIOASYNC");
    for (int round = 0; round < 3; round++) {
        arrived = 0;
        if (write(fd, "water", 5) != 5) fail("write");
        for (int tries = 0; !arrived && tries < 10000; tries++) poll(NULL, 0, 1);
        char bytes[8];
        printf("signal %d, received %zd\n", arrived, read(fd, bytes, sizeof bytes));
    }
    stop_server();
    return 0;
}
