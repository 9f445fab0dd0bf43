// Starts PROGRAM in every way that libc has: `starts PROGRAM`.
#include "probe.h"
#include <libgen.h>
#include <spawn.h>

extern char **environ;

static char *program, *name;

static void run(int way) {
    char *arguments[] = {name, "x", NULL};
    pid_t child;
    switch (way) {
    case 0: execve(program, arguments, environ); break;
    case 1: execv(program, arguments); break;
    case 2: execvp(name, arguments); break;
    case 3: execvpe(name, arguments, environ); break;
    case 4: execl(program, name, "x", NULL); break;
    case 5: execlp(name, name, "x", NULL); break;
    case 6: fexecve(open(program, O_RDONLY | O_CLOEXEC), arguments, environ); break;
    case 7: execveat(AT_FDCWD, program, arguments, environ, 0); break;
    case 8: case 9: {
        int status;
        int code = way == 8 ? posix_spawn(&child, program, NULL, NULL, arguments, environ)
                            : posix_spawnp(&child, name, NULL, NULL, arguments, environ);
        if (code == 0 && waitpid(child, &status, 0) == child) _exit(WEXITSTATUS(status));
        break;
    }
    case 10: execle(program, name, "x", "2", "3", "4", "5", "6", "7", NULL, environ); break;
    default: _exit(WEXITSTATUS(system(program)));
    }
    _exit(127);
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    program = arguments[1];
    char path[4096], *copy = strdup(program);
    name = basename(program);
    snprintf(path, sizeof path, "%s:%s", dirname(copy), getenv("PATH"));
    setenv("PATH", path, 1);
    setlinebuf(stdout);
    for (int way = 0; way <= 11; way++) {
        int status;
        pid_t child = way & 1 ? fork() : vfork();
        if (child == 0) run(way);
        if (waitpid(child, &status, 0) != child) fail("waitpid");
        printf("way %d: %d\n", way, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    return 0;
}
