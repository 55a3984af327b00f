// PID 1 of the jail: start the program, reap everything, tell the supervisor how the program really ended.
//
// Descriptors: 3 the job (memory file), 4 the program's stdin, 5 its stdout, 6 its stderr, 7 the status pipe,
// 9 the report pipe (only when the job asks). The program gets 0, 1, 2 and perhaps 9, nothing else.
// Status lines: "start NS", then "noexec ERRNO" if the program could not be started, then "exit CODE NS" or
// "signal NUMBER NS"; NS is CLOCK_MONOTONIC in nanoseconds.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { JOB = 3, IN = 4, OUT = 5, ERR = 6, STATUS = 7, REPORT = 9 };

// Written by the supervisor (config.py, `job_bytes`); then argc + envc strings, each closed by NUL.
struct job {
    uint32_t magic, argc, envc, report;
    uint64_t cpu_s, file_bytes, open_files;
};

static void say(const char *word, long value, int with_value) {
    char line[96];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long ns = now.tv_sec * 1000000000LL + now.tv_nsec;
    int n = with_value ? snprintf(line, sizeof line, "%s %ld %lld\n", word, value, ns)
                       : snprintf(line, sizeof line, "%s %lld\n", word, ns);
    if (write(STATUS, line, n) != n) _exit(112);
}

// Lower soft and hard limit to `value`; never above the hard limit that we were given.
static void bound(int what, rlim_t value) {
    struct rlimit limit;
    if (getrlimit(what, &limit)) _exit(113);
    if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max > value) limit.rlim_max = value;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(what, &limit)) _exit(113);
}

static void program(const struct job *job, char **argv, char **envp) {
    if (dup2(IN, 0) < 0 || dup2(OUT, 1) < 0 || dup2(ERR, 2) < 0) _exit(114);
    if (fcntl(STATUS, F_SETFD, FD_CLOEXEC)) _exit(114);
    syscall(SYS_close_range, 3, 6, 0);
    syscall(SYS_close_range, 8, job->report ? 8 : 9, 0);
    syscall(SYS_close_range, 10, ~0U, 0);
    setsid();
    bound(RLIMIT_CORE, 0);
    bound(RLIMIT_CPU, job->cpu_s);
    bound(RLIMIT_FSIZE, job->file_bytes);
    bound(RLIMIT_NOFILE, job->open_files);
    bound(RLIMIT_STACK, 64 << 20);
    bound(RLIMIT_MEMLOCK, 64 << 10);
    bound(RLIMIT_MSGQUEUE, 64 << 10);
    bound(RLIMIT_RTPRIO, 0);
    bound(RLIMIT_NICE, 0);
    bound(RLIMIT_SIGPENDING, 1024);
    environ = envp;
    // A file just laid out can be busy for a moment while another process still holds it open for writing.
    for (int i = 0; i < 20; i++) {
        execvp(argv[0], argv);
        if (errno != ETXTBSY) break;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    int error = errno;
    say("noexec", error, 1);
    dprintf(2, "%s: %s\n", argv[0], strerror(error));
    _exit(error == ENOENT ? 127 : 126);
}

int main(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0);
    struct stat st;
    if (fstat(JOB, &st) || st.st_size < (off_t)sizeof(struct job)) return 115;
    char *base = mmap(NULL, st.st_size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE, JOB, 0);
    if (base == MAP_FAILED) return 115;
    const struct job *job = (const struct job *)base;
    char *at = base + sizeof *job, *end = base + st.st_size;
    if (job->magic != 0x544a4f42 || job->argc == 0 || job->argc > 65536 || job->envc > 65536) return 115;
    char **argv = calloc(job->argc + job->envc + 2, sizeof *argv), **envp = argv + job->argc + 1;
    if (!argv) return 115;
    for (uint32_t i = 0; i < job->argc + job->envc; i++) {
        char *stop = memchr(at, 0, end - at);
        if (!stop) return 115;
        if (i < job->argc) argv[i] = at;
        else envp[i - job->argc] = at;
        at = stop + 1;
    }
    for (int s = 1; s < NSIG; s++) signal(s, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);
    say("start", 0, 0);
    pid_t child = fork();
    if (child < 0) return 116;
    if (child == 0) program(job, argv, envp);
    syscall(SYS_close_range, 0, 6, 0);
    syscall(SYS_close_range, 8, ~0U, 0);
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        if (pid < 0 && errno != EINTR) return 117;
        if (pid != child) continue;
        if (WIFSIGNALED(status)) say("signal", WTERMSIG(status), 1);
        else say("exit", WEXITSTATUS(status), 1);
        return 0;  // the kernel now kills whatever is left in this PID namespace
    }
}
