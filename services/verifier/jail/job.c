// PID 1 of a job: build the job's view of the machine, start the program, reap everything, note how it really ended.
//
// Order: join the cgroups first, so that all of it is charged to the job; give capabilities and the filter away last.
// The program gets 0, 1, 2 and perhaps REPORT, nothing else. When this process ends, the kernel ends all the others.
#include "keeper.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TOLD = 0, PROXY_PORT = 3128, CLOSED = MS_NOSUID | MS_NODEV };
// What nsjail leaves to the keeper (config.py, CAPABILITIES): to be taken out of the bounding set.
static const int KEPT[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_SETGID, CAP_SETUID, CAP_SETPCAP,
                           CAP_NET_ADMIN, CAP_SYS_ADMIN};

static _Noreturn void fail(const char *step) {
    page->error = errno ? errno : EIO;
    snprintf(page->step, sizeof page->step, "%s", step);
    _exit(EXIT_FAILURE);
}

#define DO(call, step) \
    do { \
        if ((call) < 0) fail(step); \
    } while (0)

static pid_t first;  // the program
static int told;     // whether we are told of sockets

static int64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

// Lower soft and hard limit to `value`; never above the hard limit that we were given.
static void bound(int what, rlim_t value) {
    struct rlimit limit;
    DO(getrlimit(what, &limit), "getrlimit");
    if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max > value) limit.rlim_max = value;
    limit.rlim_cur = limit.rlim_max;
    DO(setrlimit(what, &limit), "setrlimit");
}

static void folder(const char *path, mode_t mode) {
    DO(mkdir(path, 0700), path);
    DO(lchown(path, PROGRAM_ID, PROGRAM_ID), path);
    DO(chmod(path, mode), path);
}

// All that the program can write lies on one tmpfs with one size: the overlay's upper folder, /tmp and /dev/shm.
// Returns a descriptor of the upper folder, which keeps the tmpfs for the supervisor.
static int build(const struct request *head) {
    char options[80];
    // Over the slot's own, which nobody can uncover again; taking that away would cost a wait in the kernel.
    DO(mount("proc", "/proc", "proc", CLOSED | MS_NOEXEC | MS_RDONLY, "hidepid=2,gid=1002"), "proc");
    snprintf(options, sizeof options, "size=%llu,nr_inodes=%llu,mode=755", (unsigned long long)head->disk_bytes,
             (unsigned long long)head->inodes);
    DO(mount("temper", "/.in/up", "tmpfs", CLOSED, options), "tmpfs");
    folder("/.in/up/u", 0755);
    folder("/.in/up/k", 0755);
    folder("/.in/up/tmp", 01777);
    folder("/.in/up/shm", 01777);
    DO(mount("overlay", "/w", "overlay", CLOSED, "lowerdir=/.in/lower,upperdir=/.in/up/u,workdir=/.in/up/k,userxattr"),
       "overlay");
    DO(mount("/.in/up/tmp", "/tmp", NULL, MS_BIND, NULL), "tmp");
    DO(mount("/.in/up/shm", "/dev/shm", NULL, MS_BIND, NULL), "shm");
    int upper = open("/.in/up/u", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DO(upper, "upper");
    DO(umount2("/.in", MNT_DETACH), "detach");  // with what is mounted in it, and it is one wait for both
    return upper;
}

// A listening socket of this network namespace, for the supervisor's proxy; connections wait until it accepts.
static int listener(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PROXY_PORT),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    DO(fd, "listener");
    DO(bind(fd, (struct sockaddr *)&at, sizeof at), "listener");
    DO(listen(fd, 64), "listener");
    return fd;
}

static void hand_over(uint32_t number, const int *fds, int count) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } box;
    struct iovec part = {&number, sizeof number};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &box,
                             .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    memset(&box, 0, sizeof box);
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
    DO(sendmsg(HOLD, &message, MSG_NOSIGNAL), "hand over");
}

// Give every privilege away for good, and stay real user and group `other` until those are given away, too.
// Raw calls: nothing here may touch memory that the init shares with its child.
static void become(uid_t id, uid_t other) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {0};
    for (unsigned i = 0; i < sizeof KEPT / sizeof *KEPT; i++)
        DO(prctl(PR_CAPBSET_DROP, KEPT[i], 0, 0, 0), "bounding set");
    DO(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "ambient set");
    DO(syscall(SYS_setgroups, 0, NULL), "setgroups");
    DO(syscall(SYS_setresgid, id, other, other), "setresgid");
    // Not the effective one, by which files are made and others are signalled. An exec copies that to the saved one.
    DO(syscall(SYS_setresuid, other, id, other), "setresuid");
    DO(syscall(SYS_capset, &head, none), "capset");
}

static _Noreturn void program(const struct job *job, char **argv) {
    const struct request *head = &job->head;
    for (int i = 0; i < 3; i++) DO(dup2(job->fds[i], i), "dup2");
    if (head->flags & WITH_REPORT) {
        int fd = fcntl(job->fds[3], F_DUPFD_CLOEXEC, SPARE);
        DO(fd, "report");
        DO(dup2(fd, REPORT), "report");
        DO(syscall(SYS_close_range, 3, REPORT - 1, 0), "close_range");
        DO(syscall(SYS_close_range, REPORT + 1, ~0U, 0), "close_range");
    } else {
        DO(syscall(SYS_close_range, 3, ~0U, 0), "close_range");
    }
    DO(setsid(), "setsid");
    bound(RLIMIT_CORE, 1);  // not 0: only this also keeps a core_pattern that is a pipe from starting a program outside
    bound(RLIMIT_CPU, head->cpu_s);
    bound(RLIMIT_FSIZE, head->file_bytes);
    bound(RLIMIT_NOFILE, head->open_files);
    bound(RLIMIT_STACK, 64 << 20);
    bound(RLIMIT_MEMLOCK, 64 << 10);
    // What the kernel counts for the user outside as well, who made the jail: many jobs together leave it enough.
    bound(RLIMIT_MSGQUEUE, 8 << 10);
    bound(RLIMIT_SIGPENDING, 256);
    bound(RLIMIT_RTPRIO, 0);
    bound(RLIMIT_NICE, 0);
    DO(personality(ADDR_NO_RANDOMIZE), "personality");
    become(PROGRAM_ID, head->flags & WITH_REPORT ? REPORTER_ID : PROGRAM_ID);
    // A file just laid out can be busy for a moment while another process still holds it open for writing.
    for (int i = 0; i < 20; i++) {
        execvp(argv[0], argv);
        if (errno != ETXTBSY) break;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    int error = errno;
    page->exec_error = error;
    dprintf(2, "%s: %s\n", argv[0], strerror(error));
    _exit(error == ENOENT ? 127 : 126);
}

// Split the strings of the request into argv and the environment.
static char **strings(struct job *job) {
    const struct request *head = &job->head;
    char *at = job->text, *end = at + head->text_bytes;
    errno = EBADMSG;
    if (head->flags & WITH_FILE) {
        int fd = job->fds[3 + !!(head->flags & WITH_REPORT)];
        at = mmap(NULL, head->text_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        if (at == MAP_FAILED) fail("request");
        end = at + head->text_bytes;
    }
    if (head->argc == 0 || head->argc > 65536 || head->envc > 65536) fail("request");
    char **argv = calloc(head->argc + head->envc + 2, sizeof *argv);
    if (!argv) fail("request");
    environ = argv + head->argc + 1;
    for (uint32_t i = 0; i < head->argc + head->envc; i++) {
        char *stop = memchr(at, 0, end - at);
        errno = EBADMSG;
        if (!stop) fail("request");
        argv[i + (i >= head->argc)] = at;
        at = stop + 1;
    }
    return argv;
}

// Put the filter on; returns the descriptor on which we are told of the calls that it wants to tell of (policy.py).
static int listen_to_filter(void) {
    unsigned flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // So that a signal does not break into a call that we were told of; from Linux 5.19.
    int fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &filter);
    if (fd < 0 && errno == EINVAL) fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
    return fd;
}

// Wait until a process of the job asks for a socket: note it, and only then let the call go on. One that a signal called
// away before we could answer may have seen its call fail as it never does elsewhere: the job is then run again, untold.
static void let_pass(void) {
    union {
        struct seccomp_notif call;
        char room[256];  // the kernel's may have grown
    } asked = {0};
    if (ioctl(TOLD, SECCOMP_IOCTL_NOTIF_RECV, &asked)) {
        if (errno != EINTR) page->sockets = page->disturbed = 1;
        return;
    }
    page->sockets = 1;
    union {
        struct seccomp_notif_resp answer;
        char room[256];
    } go = {.answer = {.id = asked.call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE}};
    if (ioctl(TOLD, SECCOMP_IOCTL_NOTIF_SEND, &go)) page->disturbed = 1;
}

static void nothing(int signal) { (void)signal; }

// At the end: whether somebody has asked since we last listened. The timer ends a wait that nobody else would.
static void let_pass_no_more(void) {
    struct sigaction act = {.sa_handler = nothing};
    struct itimerval soon = {.it_interval = {.tv_usec = 100}, .it_value = {.tv_usec = 1}};
    if (sigaction(SIGALRM, &act, NULL) || setitimer(ITIMER_REAL, &soon, NULL)) page->sockets = 1;
    else let_pass();
}

// Reap all that have died. When the program is among them the job is over. Runs as the handler of SIGCHLD, too.
static void reap(int signal) {
    int status, error = errno;
    (void)signal;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid != first) continue;
        page->status = status;
        page->end_ns = now();
        if (told) let_pass_no_more();
        _exit(EXIT_SUCCESS);  // the kernel now kills whatever is left in this PID namespace
    }
    errno = error;
}

_Noreturn void run_job(struct job *job) {
    const struct request *head = &job->head;
    page->number = head->number;
    for (uint32_t i = 0; i < head->procs; i++) DO(write(job->fds[job->count - 1 - i], "0", 1), "join a cgroup");
    DO(prctl(PR_SET_PDEATHSIG, SIGKILL), "prctl");
    DO(unshare(CLONE_NEWCGROUP), "cgroup namespace");
    umask(022);
    int given[2] = {build(head), -1}, count = 1;
    if (head->flags & WITH_LISTENER) given[count++] = listener();
    hand_over(head->number, given, count);
    char **argv = strings(job);
    DO(chdir("/w"), "chdir");
    // The filter needs this or CAP_SYS_ADMIN, which we have still. Nothing here could give privileges: all is nosuid.
    if (!(head->flags & WITH_LATE)) DO(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl");
    told = !(head->flags & WITH_OWN_NETWORK);
    static int fd;  // not a register of a process that has a vfork before it
    fd = told ? listen_to_filter() : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
    DO(fd, "seccomp");
    page->start_ns = now();
    first = vfork();
    DO(first, "vfork");
    if (first == 0) program(job, argv);
    if (told) DO(dup2(fd, TOLD), "dup2");
    DO(syscall(SYS_close_range, told ? TOLD + 1 : 0, ~0U, 0), "close_range");
    DO(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl");
    become(INIT_ID, INIT_ID);
    // Changing ids clears the parent-death signal and may make a process dumpable again.
    DO(prctl(PR_SET_PDEATHSIG, SIGKILL), "prctl");
    DO(prctl(PR_SET_DUMPABLE, 0), "prctl");
    struct sigaction act = {.sa_handler = reap};
    DO(sigaction(SIGCHLD, &act, NULL), "sigaction");
    reap(SIGCHLD);  // who died before that
    for (;;)
        if (told) let_pass();
        else pause();
}
