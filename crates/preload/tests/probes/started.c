// A program that other programs start.
#include <stdio.h>

int main(int count, char **arguments) {
    printf("started with %d arguments\n", count);
    fflush(stdout);
    return count > 1 && arguments[1][0] == 'x' ? 7 : 8;
}
