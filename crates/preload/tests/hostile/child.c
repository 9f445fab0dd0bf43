// A process whose forked child has given up its user, and attacks it: `child MODE`.
//
// The parent exchanges messages with a third process. The child has what a fork inherits: shared memory,
// and the connection to the monitor. Exit codes: 0 the parent is unharmed, 1 it is not, 2 a step failed.
#include "../probes/probe.h"
#include <sys/mman.h>

#define VICTIM_LENGTH (4 << 20)
#define MAX_RANGES 4096

static unsigned char *victim;

struct range {
    uintptr_t start, end;
    int is_shared;
};

static struct range ranges[MAX_RANGES];
static int range_count;

static void read_ranges(void) {
    static char line[8192];
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) fail("maps");
    while (range_count < MAX_RANGES && fgets(line, sizeof line, maps)) {
        struct range range;
        char mode[5];
        if (sscanf(line, "%lx-%lx %4s", &range.start, &range.end, mode) != 3) continue;
        range.is_shared = !strncmp(mode, "rw-s", 4);
        ranges[range_count++] = range;
    }
    fclose(maps);
}

// The number of shared words that are an address of this process; each becomes that of the victim.
static long replace_addresses(void) {
    long found = 0;
    for (int at = 0; at < range_count; at++) {
        if (!ranges[at].is_shared) continue;
        for (uintptr_t word = ranges[at].start; word < ranges[at].end; word += 8) {
            uint64_t value = *(volatile uint64_t *)word;
            if (value < 4096) continue;
            for (int other = 0; other < range_count; other++)
                if (value >= ranges[other].start && value < ranges[other].end) {
                    *(volatile uint64_t *)word = (uint64_t)victim;
                    found++;
                    break;
                }
        }
    }
    return found;
}

static uint64_t random_state = 88172645463325252u;

static uint64_t random_word(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void scribble(void) {
    const uint64_t values[] = {0, 1, 2, 3, ~0ull, 1ull << 63, 1ull << 32, (uint64_t)victim};
    for (int round = 0; round < 300; round++)
        for (int at = 0; at < range_count; at++) {
            if (!ranges[at].is_shared) continue;
            uint64_t words = (ranges[at].end - ranges[at].start) / 8;
            for (int count = 0; count < 500; count++) {
                uint64_t word = random_word() % (count & 1 ? words : words < 512 ? words : 512);
                uint64_t kind = random_word() % 12;
                uint64_t value = kind < 8 ? values[kind] : random_word() >> (random_word() % 64);
                *((volatile uint64_t *)ranges[at].start + word) = value;
            }
        }
}

// Asks the monitor, over the inherited connection, for what other processes show.
static int list(void) {
    unsigned char request[24] = {5};
    int exit_code = 2;
    for (int fd = 3; fd < 4096; fd++) {
        int domain = 0, type = 0;
        socklen_t length = sizeof domain;
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length)) continue;
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length)) continue;
        if (domain != AF_UNIX || type != SOCK_SEQPACKET) continue;
        exit_code = 0;
        if (send(fd, request, sizeof request, MSG_NOSIGNAL) < 0) fail("send");
        for (;;) {
            unsigned char answer[64];
            char control[512];
            struct iovec piece = {answer, sizeof answer};
            struct msghdr message = {0};
            message.msg_iov = &piece;
            message.msg_iovlen = 1;
            message.msg_control = control;
            message.msg_controllen = sizeof control;
            struct pollfd waiting = {fd, POLLIN, 0};
            if (poll(&waiting, 1, 20000) != 1) fail("the monitor does not answer");
            ssize_t received = recvmsg(fd, &message, MSG_DONTWAIT);
            if (received <= 0) break;
            if (answer[0] == 20 || answer[0] == 21) {
                fprintf(stderr, "the monitor shows other processes\n");
                exit_code = 1;
            }
            if (answer[0] == 21) break;
        }
    }
    return exit_code;
}

// Reads descriptors that the monitor sends to the parent, without taking them away.
static int peek(void) {
    for (int round = 0; round < 20000; round++)
        for (int fd = 900; fd < 1000; fd++) {
            char bytes[64], control[512];
            struct iovec piece = {bytes, sizeof bytes};
            struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control,
                                     .msg_controllen = sizeof control};
            if (recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT) > 0 && CMSG_FIRSTHDR(&message)) {
                fprintf(stderr, "descriptors of the parent\n");
                return 1;
            }
        }
    return 0;
}

// Fills all eventfds, and lets further writes block.
static void poison(void) {
    for (int round = 0; round < 200; round++)
        for (int fd = 900; fd < 1000; fd++) {
            uint64_t most = UINT64_MAX - 1;
            char name[64], path[64];
            snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
            ssize_t length = readlink(path, name, sizeof name - 1);
            if (length < 0 || strncmp(name, "anon_inode:[eventfd]", length)) continue;
            fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
            // Not until it fails: if the parent empties it meanwhile, that takes up to 2^64 writes.
            for (; most; most /= 2)
                for (int times = 0; times < 4 && write(fd, &most, sizeof most) > 0; times++) {}
            fcntl(fd, F_SETFL, O_RDWR);
        }
}

static int attack(const char *mode) {
    if (setgid(65534) || setuid(65534)) fail("setuid");
    prctl(PR_SET_DUMPABLE, 1);
    read_ranges();
    if (!strcmp(mode, "list")) return list();
    if (!strcmp(mode, "scribble")) return scribble(), 0;
    if (!strcmp(mode, "peek")) return peek();
    if (!strcmp(mode, "poison")) return poison(), 0;
    long found = replace_addresses();
    if (found) fprintf(stderr, "%ld addresses in shared memory\n", found);
    return found != 0;
}

static void *exchange_on(void *argument) {
    while (exchange((int)(intptr_t)argument, EXCHANGES)) {}
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    start_server();
    alarm(120);
    victim = mmap(NULL, VICTIM_LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (victim == MAP_FAILED) fail("mmap");
    memset(victim, 0x5a, VICTIM_LENGTH);

    int before = connected_by_ring();
    pid_t child = fork();
    if (child == 0) _exit(attack(arguments[1]));
    // While it attacks: a connection that the child has, too, and new ones, which it has not.
    pthread_t thread;
    if (pthread_create(&thread, NULL, exchange_on, (void *)(intptr_t)before)) fail("thread");
    int status = 0, is_unharmed = 1;
    do {
        int after = connected();
        // Also one that waits for the bell of this process.
        struct pollfd waiting = {after, POLLIN, 0};
        int is_right = exchange(after, EXCHANGES);
        for (int round = 0; is_right && round < EXCHANGES; round++) {
            char byte;
            is_right = write(after, "x", 1) == 1 && poll(&waiting, 1, 20000) == 1 &&
                read(after, &byte, 1) == 1 && byte == 'x';
        }
        if (!is_right) {
            fprintf(stderr, "a connection is harmed that the child does not have\n");
            is_unharmed = 0;
        }
        close(after);
    } while (waitpid(child, &status, WNOHANG) == 0);
    for (size_t at = 0; at < VICTIM_LENGTH; at++)
        if (victim[at] != 0x5a) {
            fprintf(stderr, "memory of the parent was changed\n");
            is_unharmed = 0;
            break;
        }
    if (!WIFEXITED(status)) is_unharmed = 0;
    kill(server, SIGKILL);
    // The child may hold a lock of its connection for ever: that must not keep the parent from its end.
    _exit(is_unharmed ? WEXITSTATUS(status) : 1);
}
