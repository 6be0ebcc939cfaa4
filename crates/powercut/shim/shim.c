/* Records what a program does to the files below a folder: preloaded (ld.so(8)) into it by hoop-powercut.
 *
 * POWERCUT_ROOT is the folder, POWERCUT_JOURNAL the file that records are appended to, each by one write. A record is written after its
 * call has returned and before the program hears of it: so what a program knows to have happened before a sync began stands before
 * that sync. What the model knows nothing of (a shared mapping that is written to, an odd allocation) is recorded as such, and fails the test.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { CREATE = 1, WRITE, TRUNCATE, EXTEND, RENAME, UNLINK, MKDIR, SYNC_BEGIN, SYNC_END, NOTE, UNMODELLED, HOLE };

struct head {
    uint32_t kind;
    uint32_t first_len, second_len; /* two paths, or a text and nothing */
    uint32_t data_len;
    uint64_t inode, number;
};

static char root[PATH_MAX];
static size_t root_len;
static int journal = -1;
static atomic_ulong syncs;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("POWERCUT_ROOT"), *file = getenv("POWERCUT_JOURNAL");
    if (!folder || !file || !realpath(folder, root)) return;
    root_len = strlen(root);
    journal = REAL(open)(file, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (journal < 0) abort();
}

static void record(enum kind kind, const char *first, const char *second, uint64_t inode, uint64_t number, const void *data, size_t len) {
    int before = errno;
    struct head head = {kind, first ? strlen(first) : 0, second ? strlen(second) : 0, len, inode, number};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)first, head.first_len}, {(void *)second, head.second_len}, {(void *)data, len}};
    ssize_t whole = sizeof head + head.first_len + head.second_len + len;
    if (REAL(writev)(journal, parts, 4) != whole) abort();
    errno = before;
}

/* A path below the root, without the root; the root itself is "". NULL: none of ours. */
static const char *below(const char *path) {
    if (journal < 0 || strncmp(path, root, root_len)) return NULL;
    if (path[root_len] == 0) return path + root_len;
    return path[root_len] == '/' ? path + root_len + 1 : NULL;
}

/* The path that a call means, made absolute; the last part is not resolved, since it may not be there. */
static const char *absolute(int folder, const char *path, char *room) {
    char base[PATH_MAX];
    if (path[0] == '/') {
        snprintf(room, PATH_MAX, "%s", path);
        return room;
    }
    if (folder == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return path;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t len = readlink(link, base, sizeof base - 1);
        if (len < 0) return path;
        base[len] = 0;
    }
    if ((size_t)snprintf(room, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) abort();
    return room;
}

/* The inode of a descriptor if its file lies below the root; 0 otherwise. */
static uint64_t inode_of(int fd) {
    char link[64], path[PATH_MAX];
    struct stat stat;
    int before = errno;
    if (journal < 0 || fd == journal) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    path[len < 0 ? 0 : len] = 0;
    uint64_t inode = len > 0 && below(path) && !fstat(fd, &stat) ? stat.st_ino : 0;
    errno = before;
    return inode;
}

static int opened(int folder, const char *path, int flags, mode_t mode, int (*call)(int, const char *, int, ...)) {
    char room[PATH_MAX];
    struct stat stat;
    const char *named = journal < 0 ? NULL : below(absolute(folder, path, room));
    int was_there = named && !fstatat(folder, path, &stat, 0);
    int fd = call(folder, path, flags, mode);
    if (fd < 0 || !named || fstat(fd, &stat)) return fd;
    if (!was_there && (flags & O_CREAT)) record(CREATE, named, NULL, stat.st_ino, 0, NULL, 0);
    else if ((flags & O_TRUNC) && S_ISREG(stat.st_mode)) record(TRUNCATE, NULL, NULL, stat.st_ino, 0, NULL, 0);
    return fd;
}

#define MODE(flags, last) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, last); mode = va_arg(more, mode_t); va_end(more); }

int open(const char *path, int flags, ...) { MODE(flags, flags) return opened(AT_FDCWD, path, flags, mode, REAL(openat)); }
int open64(const char *path, int flags, ...) { MODE(flags, flags) return opened(AT_FDCWD, path, flags | O_LARGEFILE, mode, REAL(openat)); }
int openat(int folder, const char *path, int flags, ...) { MODE(flags, flags) return opened(folder, path, flags, mode, REAL(openat)); }
int openat64(int folder, const char *path, int flags, ...) { MODE(flags, flags) return opened(folder, path, flags | O_LARGEFILE, mode, REAL(openat)); }
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode, REAL(openat)); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

static void written(int fd, const void *data, ssize_t len, off_t at) {
    uint64_t inode = len > 0 ? inode_of(fd) : 0;
    if (inode) record(WRITE, NULL, NULL, inode, at, data, len);
}

/* Where the descriptor stood before it took `len` bytes. */
static off_t before(int fd, ssize_t len) {
    return len > 0 && inode_of(fd) ? lseek(fd, 0, SEEK_CUR) - len : 0;
}

ssize_t write(int fd, const void *data, size_t len) {
    ssize_t done = REAL(write)(fd, data, len);
    written(fd, data, done, before(fd, done));
    return done;
}

static ssize_t placed(int fd, const void *data, size_t len, off_t at) {
    ssize_t done = REAL(pwrite)(fd, data, len, at);
    written(fd, data, done, at);
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t len, off_t at) { return placed(fd, data, len, at); }
ssize_t pwrite64(int fd, const void *data, size_t len, off_t at) { return placed(fd, data, len, at); }

/* What was written by a call whose bytes are not at hand is read again. */
static void read_again(int fd, ssize_t len, off_t at) {
    if (len <= 0 || !inode_of(fd)) return;
    char link[64], *data = malloc(len);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int readable = REAL(open)(link, O_RDONLY | O_CLOEXEC);
    if (!data || readable < 0 || pread(readable, data, len, at) != len) abort();
    written(fd, data, len, at);
    close(readable);
    free(data);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    ssize_t done = REAL(writev)(fd, parts, count);
    read_again(fd, done, before(fd, done));
    return done;
}

static ssize_t placed_parts(int fd, const struct iovec *parts, int count, off_t at) {
    ssize_t done = REAL(pwritev)(fd, parts, count, at);
    read_again(fd, done, at);
    return done;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return placed_parts(fd, parts, count, at); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t at) { return placed_parts(fd, parts, count, at); }

ssize_t splice(int from, off64_t *from_at, int fd, off64_t *at, size_t len, unsigned flags) {
    off64_t place = at ? *at : 0;
    ssize_t done = REAL(splice)(from, from_at, fd, at, len, flags);
    read_again(fd, done, at ? place : before(fd, done));
    return done;
}

ssize_t copy_file_range(int from, off64_t *from_at, int fd, off64_t *at, size_t len, unsigned flags) {
    off64_t place = at ? *at : 0;
    ssize_t done = REAL(copy_file_range)(from, from_at, fd, at, len, flags);
    read_again(fd, done, at ? place : before(fd, done));
    return done;
}

ssize_t sendfile(int fd, int from, off_t *at, size_t len) {
    ssize_t done = REAL(sendfile)(fd, from, at, len);
    read_again(fd, done, before(fd, done));
    return done;
}

ssize_t sendfile64(int fd, int from, off64_t *at, size_t len) { return sendfile(fd, from, at, len); }

static int cut(int fd, off_t len) {
    int failed = REAL(ftruncate)(fd, len);
    uint64_t inode = failed ? 0 : inode_of(fd);
    if (inode) record(TRUNCATE, NULL, NULL, inode, len, NULL, 0);
    return failed;
}

int ftruncate(int fd, off_t len) { return cut(fd, len); }
int ftruncate64(int fd, off_t len) { return cut(fd, len); }

static void allocated(int fd, int mode, off_t at, off_t len) {
    uint64_t inode = inode_of(fd), bytes = len;
    if (!inode || mode == FALLOC_FL_KEEP_SIZE) return;
    if (mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) record(HOLE, NULL, NULL, inode, at, &bytes, sizeof bytes);
    else if (mode) record(UNMODELLED, "an allocation", NULL, inode, 0, NULL, 0);
    else record(EXTEND, NULL, NULL, inode, at + len, NULL, 0);
}

int fallocate(int fd, int mode, off_t at, off_t len) {
    int failed = REAL(fallocate)(fd, mode, at, len);
    if (!failed) allocated(fd, mode, at, len);
    return failed;
}
int fallocate64(int fd, int mode, off_t at, off_t len) { return fallocate(fd, mode, at, len); }

int posix_fallocate(int fd, off_t at, off_t len) {
    int failed = REAL(posix_fallocate)(fd, at, len);
    if (!failed) allocated(fd, 0, at, len);
    return failed;
}
int posix_fallocate64(int fd, off_t at, off_t len) { return posix_fallocate(fd, at, len); }

/* A call on names: recorded if it succeeded and is ours. */
static int named(int failed, enum kind kind, int folder, const char *path, int second_folder, const char *second) {
    char room[PATH_MAX], second_room[PATH_MAX];
    struct stat stat = {0};
    if (failed || journal < 0) return failed;
    const char *ours = below(absolute(folder, path, room));
    const char *theirs = second ? below(absolute(second_folder, second, second_room)) : NULL;
    if (second && !ours != !theirs) record(UNMODELLED, "a name that crosses the folder's border", NULL, 0, 0, NULL, 0);
    if (!ours) return failed;
    if (kind == MKDIR) fstatat(folder, path, &stat, AT_SYMLINK_NOFOLLOW);
    record(kind, ours, theirs, stat.st_ino, 0, NULL, 0);
    return failed;
}

int rename(const char *from, const char *to) { return named(REAL(rename)(from, to), RENAME, AT_FDCWD, from, AT_FDCWD, to); }
int renameat(int a, const char *from, int b, const char *to) { return named(REAL(renameat)(a, from, b, to), RENAME, a, from, b, to); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    int failed = REAL(renameat2)(a, from, b, to, flags);
    return named(failed, flags & ~RENAME_NOREPLACE ? UNMODELLED : RENAME, a, from, b, to);
}
int unlink(const char *path) { return named(REAL(unlink)(path), UNLINK, AT_FDCWD, path, 0, NULL); }
int unlinkat(int folder, const char *path, int flags) { return named(REAL(unlinkat)(folder, path, flags), UNLINK, folder, path, 0, NULL); }
int rmdir(const char *path) { return named(REAL(rmdir)(path), UNLINK, AT_FDCWD, path, 0, NULL); }
int mkdir(const char *path, mode_t mode) { return named(REAL(mkdir)(path, mode), MKDIR, AT_FDCWD, path, 0, NULL); }
int mkdirat(int folder, const char *path, mode_t mode) { return named(REAL(mkdirat)(folder, path, mode), MKDIR, folder, path, 0, NULL); }
int link(const char *from, const char *to) { return named(REAL(link)(from, to), UNMODELLED, AT_FDCWD, from, AT_FDCWD, to); }
int linkat(int a, const char *from, int b, const char *to, int flags) { return named(REAL(linkat)(a, from, b, to, flags), UNMODELLED, a, from, b, to); }
int truncate(const char *path, off_t len) { return named(REAL(truncate)(path, len), UNMODELLED, AT_FDCWD, path, 0, NULL); }

/* It covers what was recorded before it began, from when it has returned. */
static int synced(int fd, int (*call)(int)) {
    uint64_t inode = inode_of(fd), number = inode ? atomic_fetch_add(&syncs, 1) ^ (uint64_t)getpid() << 32 : 0;
    if (inode) record(SYNC_BEGIN, NULL, NULL, inode, number, NULL, 0);
    int failed = call(fd);
    if (inode && !failed) record(SYNC_END, NULL, NULL, inode, number, NULL, 0);
    return failed;
}

int fsync(int fd) { return synced(fd, REAL(fsync)); }
int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }

/* SQLite's wal-index is shared memory in a file, and is made anew after a crash. No other file of ours is written by a mapping. */
static void mapped(void *at, int protection, int flags, int fd) {
    char link[64], path[PATH_MAX];
    int before = errno;
    if (at == MAP_FAILED || fd < 0 || !(flags & MAP_SHARED) || !(protection & PROT_WRITE) || !inode_of(fd)) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 4 || strncmp(path + len - 4, "-shm", 4)) record(UNMODELLED, "a file that is written by a mapping", NULL, 0, 0, NULL, 0);
    errno = before;
}

void *mmap(void *where, size_t len, int protection, int flags, int fd, off_t at) {
    void *place = REAL(mmap)(where, len, protection, flags, fd, at);
    mapped(place, protection, flags, fd);
    return place;
}
void *mmap64(void *where, size_t len, int protection, int flags, int fd, off_t at) {
    void *place = REAL(mmap)(where, len, protection, flags, fd, at);
    mapped(place, protection, flags, fd);
    return place;
}
