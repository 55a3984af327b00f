// The least that a start can cost, and a driver for other jails that costs next to nothing itself.
//
//   floor COUNT plain|spaces PROCS... ++ COMMAND... [++ COMMAND...]
//       join the cgroup.procs files PROCS, then COUNT times run the commands, one after the other, each as a plain child
//       or in seven new namespaces (clone3 and exec, nothing else); writes the nanoseconds of each round as lines.
//       Ends with 1 as soon as a command does not end with status 0.
//   floor hang                                        writes CLOCK_MONOTONIC in nanoseconds, then waits for ever,
//       as do three children of it that ignore what can be ignored, one in a session of its own.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int hang(void) {
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, 0);
    printf("%lld\n", now());
    fflush(stdout);
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            if (i == 0) setsid();
            break;
        }
    for (;;) pause();
}

static pid_t in_spaces(void) {
    struct clone_args arguments = {
        .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                 CLONE_NEWCGROUP,
        .exit_signal = SIGCHLD,
    };
    return (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "hang") == 0) return hang();
    if (argc < 5) return 2;
    int count = atoi(argv[1]), spaces = strcmp(argv[2], "spaces") == 0, at = 3, commands = 0;
    for (; at < argc && strcmp(argv[at], "++") != 0; at++) {
        int procs = open(argv[at], O_WRONLY | O_CLOEXEC);
        if (procs < 0 || write(procs, "0", 1) != 1) {
            perror(argv[at]);
            return 2;
        }
        close(procs);
    }
    char **command[64];
    for (; at < argc && commands < 64; at++)
        if (strcmp(argv[at], "++") == 0) {
            argv[at] = NULL;
            command[commands++] = argv + at + 1;
        }
    char *env[] = {"PATH=/usr/bin:/bin", "PYTHONHASHSEED=0", NULL};
    long long *took = calloc(count, sizeof *took);
    int report = fcntl(1, F_DUPFD_CLOEXEC, 3), null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; fd++) dup2(null, fd);
    for (int i = 0; i < count; i++) {
        long long begun = now();
        for (int n = 0; n < commands; n++) {
            pid_t child = spaces ? in_spaces() : vfork();
            if (child == 0) {
                execve(command[n][0], command[n], env);
                _exit(127);
            }
            int status = -1;
            if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
                dprintf(report, "command %d of round %d ended with status %d\n", n, i, status);
                return 1;
            }
        }
        took[i] = now() - begun;
    }
    for (int i = 0; i < count; i++) dprintf(report, "%lld\n", took[i]);
    return 0;
}
