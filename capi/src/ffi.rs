//! The functions of `d2tp.h`. Each is what its BSD counterpart is, and sets `errno` as that does; what is said of it is in the header and in d2tp(7).
//!
//! Pointers are C's promise: that they are null or lead to as much as is said beside them.

#![allow(unsafe_code, reason = "C's pointers, and what fork and exit ask for")]
#![allow(clippy::missing_safety_doc, reason = "the promise is the same for all, and stands above")]

use crate::address;
use crate::copy;
use crate::library::Library;
use crate::socket::Socket;
use libc::{c_char, c_int, c_long, c_ulong, c_void, iovec, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};
use nix::errno::Errno;
use std::ffi::{CStr, OsStr};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::copy_nonoverlapping;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// This process is a child that was forked after the library had begun: nobody copies here.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

// ---- The process.

/// The library, which begins at first use.
fn library() -> Result<&'static Library, Errno> {
    Library::get(attend_process)
}

/// Has the process's end wait for delivery, and a child know that it is one.
fn attend_process() {
    // SAFETY: both are functions of this library, which is not unloaded while they are registered: a library with threads cannot be.
    unsafe {
        libc::atexit(at_exit);
        libc::pthread_atfork(None, None, Some(in_child));
    }
}

extern "C" fn at_exit() {
    if !is_child()
        && let Some(library) = Library::begun()
    {
        library.finish();
    }
}

/// The runtime's threads are not here; the parent goes on to copy. Its ends of the pairs are closed, so that the program sees them close.
extern "C" fn in_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
    let Some(library) = Library::begun() else { return };
    library.each_local(|fd| {
        // SAFETY: it is a copy of the parent's, and nothing here uses it.
        unsafe { libc::close(fd) };
    });
}

fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

// ---- Between C and Rust.

fn answer(done: Result<c_int, Errno>) -> c_int {
    done.unwrap_or_else(|error| {
        error.set();
        -1
    })
}

/// A descriptor's socket.
fn find(fd: c_int) -> Result<(&'static Library, Arc<Socket>), Errno> {
    if is_child() {
        return Err(Errno::EOPNOTSUPP);
    }
    let library = library()?;
    Ok((library, library.find(fd)?))
}

/// What a pointer leads to.
unsafe fn bytes<'a>(start: *const c_void, len: size_t) -> Result<&'a [u8], Errno> {
    if start.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: C promises `len` bytes there, and leaves them alone while the call lasts.
    Ok(unsafe { slice::from_raw_parts(start.cast(), len) })
}

unsafe fn read_address(address: *const sockaddr, len: socklen_t) -> Result<SocketAddr, Errno> {
    // SAFETY: as the caller's.
    address::read(unsafe { bytes(address.cast(), len as size_t) }?)
}

/// Gives `value` to the program, as much of it as there is room for, and the length in whole.
unsafe fn give(value: &[u8], to: *mut c_void, len: *mut socklen_t, is_whole: bool) -> Result<(), Errno> {
    if to.is_null() || len.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: C promises that `len` leads to a length, and `to` to so many bytes.
    unsafe {
        let most = value.len().min(*len as usize);
        copy_nonoverlapping(value.as_ptr(), to.cast::<u8>(), most);
        // A value of these few bytes has a length that fits.
        *len = if is_whole { value.len() } else { most } as socklen_t;
    }
    Ok(())
}

unsafe fn path<'a>(name: *const c_char) -> Result<&'a Path, Errno> {
    if name.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: C promises a string that ends.
    let name = unsafe { CStr::from_ptr(name) };
    Ok(Path::new(OsStr::from_bytes(name.to_bytes())))
}

fn last<T: PartialOrd + Default>(done: T) -> Result<T, Errno> {
    if done < T::default() { Err(Errno::last()) } else { Ok(done) }
}

// ---- Where the server is, and who the device.

/// Names the file about the server that flows are opened to, instead of `D2TP_DEVICE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_setup(device_file: *const c_char) -> c_int {
    // SAFETY: as C promises.
    let file = unsafe { path(device_file) };
    answer(file.and_then(|file| library()?.set_device(file).map(|()| 0)))
}

/// Names the file about this server, instead of `D2TP_SERVER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_setup_server(server_file: *const c_char) -> c_int {
    // SAFETY: as C promises.
    let file = unsafe { path(server_file) };
    answer(file.and_then(|file| library()?.set_server(file).map(|()| 0)))
}

// ---- Sockets.

/// `socket`.
#[unsafe(no_mangle)]
pub extern "C" fn d2tp_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if is_child() {
        return answer(Err(Errno::EOPNOTSUPP));
    }
    answer(library().and_then(|library| Socket::open(library, domain, kind, protocol)))
}

/// `bind`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    answer(find(fd).and_then(|(_, socket)| {
        // SAFETY: as C promises.
        socket.bind(unsafe { read_address(address, len) }?)?;
        Ok(0)
    }))
}

/// `listen`.
#[unsafe(no_mangle)]
pub extern "C" fn d2tp_listen(fd: c_int, backlog: c_int) -> c_int {
    answer(find(fd).and_then(|(library, socket)| socket.listen(library, backlog).map(|()| 0)))
}

/// `accept`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: as C promises.
    unsafe { d2tp_accept4(fd, address, len, 0) }
}

/// `accept4`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    answer(find(fd).and_then(|(library, socket)| {
        if !socket.is_listening() {
            return Err(Errno::EINVAL);
        }
        let mut byte = 0_u8;
        // SAFETY: there is room for one byte.
        if last(unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, 0) })? == 0 {
            return Err(Errno::EINVAL);
        }
        let accepted = socket.accept(library, flags)?;
        if !address.is_null() {
            // SAFETY: as C promises.
            unsafe { d2tp_getpeername(accepted, address, len) };
        }
        Ok(accepted)
    }))
}

/// `connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    answer(find(fd).and_then(|(library, socket)| {
        // SAFETY: as C promises.
        socket.connect(library, unsafe { read_address(address, len) }?)?;
        // SAFETY: takes no pointer.
        if last(unsafe { libc::fcntl(fd, libc::F_GETFL) })? & libc::O_NONBLOCK != 0 {
            return Err(Errno::EINPROGRESS);
        }
        wait_connected(fd, &socket)
    }))
}

/// Waits as the kernel does, so that a signal interrupts it and connecting goes on; `SO_SNDTIMEO` bounds it.
fn wait_connected(fd: c_int, socket: &Socket) -> Result<c_int, Errno> {
    let mut limit = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of::<libc::timeval>() as socklen_t;
    // SAFETY: there is room for one `timeval`, whose length is given.
    unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, (&raw mut limit).cast(), &raw mut len) };
    let limit = limit.tv_sec.saturating_mul(1_000).saturating_add(limit.tv_usec / 1_000);
    let limit = if limit > 0 { c_int::try_from(limit).unwrap_or(c_int::MAX) } else { -1 };
    loop {
        let mut polled = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one `pollfd`, as is said.
        let ready = last(unsafe { libc::poll(&raw mut polled, 1, limit) })?;
        match socket.is_connected() {
            Some(ended) => return ended.map(|()| 0),
            None if ready == 0 => return Err(Errno::EINPROGRESS),
            None => {}
        }
    }
}

/// `shutdown`.
#[unsafe(no_mangle)]
pub extern "C" fn d2tp_shutdown(fd: c_int, how: c_int) -> c_int {
    if is_child() {
        // SAFETY: takes no pointer.
        return unsafe { libc::shutdown(fd, how) };
    }
    answer(find(fd).and_then(|(_, socket)| socket.shutdown(fd, how).map(|()| 0)))
}

/// `close`, of any descriptor. What was written to a socket is still delivered.
#[unsafe(no_mangle)]
pub extern "C" fn d2tp_close(fd: c_int) -> c_int {
    let close = || {
        // SAFETY: takes no pointer.
        last(unsafe { libc::close(fd) })
    };
    answer(find_for(fd, Whose::Any).and_then(|socket| {
        let (Some(socket), Some(library)) = (socket, Library::begun()) else { return close() };
        let linger = socket.close(library);
        let status = socket.flow().and_then(|flow| flow.status());
        close()?;
        socket.changed.notify_one();
        if let (Some(seconds @ 1..), Some(status)) = (linger, status) {
            library.runtime().block_on(copy::delivered(status, Duration::from_secs(seconds.into())));
        }
        Ok(0)
    }))
}

// ---- Bytes.

/// Who may call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Any descriptor, as with `read`: others than the library's are the kernel's alone, so that who ports a program need not tell them apart.
    Any,
    /// A socket, as with `recv`.
    Socket,
}

/// The socket of a descriptor; None: the call is the kernel's alone.
fn find_for(fd: c_int, whose: Whose) -> Result<Option<Arc<Socket>>, Errno> {
    if is_child() {
        return Ok(None);
    }
    match find(fd) {
        Ok((_, socket)) => Ok(Some(socket)),
        Err(Errno::ENOTSOCK) if whose == Whose::Any => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a call that reads goes to the kernel.
fn before_read(fd: c_int, whose: Whose, flags: c_int) -> Result<Option<Arc<Socket>>, Errno> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno::EINVAL);
    }
    let socket = find_for(fd, whose)?;
    socket.as_ref().map_or(Ok(()), |socket| socket.check_data())?;
    Ok(socket)
}

/// What the kernel said of reading; why, if the flow has failed.
fn after_read(socket: Option<Arc<Socket>>, read: ssize_t) -> Result<ssize_t, Errno> {
    let read = last(read);
    let has_ended = matches!(read, Ok(0) | Err(Errno::ECONNRESET));
    // Once the other end has said all, nothing that happens later matters to who reads.
    let is_whole = |socket: &Arc<Socket>| socket.is_at_end.load(Ordering::Acquire);
    match socket.filter(|socket| has_ended && !is_whole(socket)).and_then(|socket| socket.take_error()) {
        Some(error) => Err(error),
        None => read,
    }
}

/// Whether a call that writes goes to the kernel.
fn before_write(fd: c_int, whose: Whose, flags: c_int) -> Result<Option<Arc<Socket>>, Errno> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let Some(socket) = find_for(fd, whose)? else { return Ok(None) };
    socket.check_data()?;
    if let Some(error) = socket.take_error() {
        return Err(error);
    }
    if socket.is_shut.load(Ordering::Acquire) {
        if flags & libc::MSG_NOSIGNAL == 0 {
            // SAFETY: takes no pointer; what handles it is the program's.
            unsafe { libc::raise(libc::SIGPIPE) };
        }
        return Err(Errno::EPIPE);
    }
    Ok(Some(socket))
}

/// What the kernel said of writing; why, if the flow has failed.
fn after_write(socket: Option<Arc<Socket>>, written: ssize_t) -> Result<ssize_t, Errno> {
    let written = last(written);
    let has_failed = matches!(written, Err(Errno::ECONNRESET | Errno::EPIPE));
    match socket.filter(|_| has_failed).and_then(|socket| socket.take_error()) {
        Some(error) => Err(error),
        None => written,
    }
}

fn answer_len(done: Result<ssize_t, Errno>) -> ssize_t {
    done.unwrap_or_else(|error| {
        error.set();
        -1
    })
}

/// `recv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_recv(fd: c_int, bytes: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    answer_len(before_read(fd, Whose::Socket, flags).and_then(|socket| {
        // SAFETY: as C promises; the kernel says EFAULT otherwise.
        after_read(socket, unsafe { libc::recv(fd, bytes, len, flags) })
    }))
}

/// `recvmsg`: as of TCP, nothing comes beside the bytes, and nobody's address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    answer_len(before_read(fd, Whose::Socket, flags).and_then(|socket| {
        // SAFETY: as C promises; the kernel says EFAULT otherwise.
        let read = after_read(socket, unsafe { libc::recvmsg(fd, message, flags) })?;
        // SAFETY: the kernel has just written there.
        unsafe { (*message).msg_namelen = 0 };
        Ok(read)
    }))
}

/// `read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_read(fd: c_int, bytes: *mut c_void, len: size_t) -> ssize_t {
    answer_len(before_read(fd, Whose::Any, 0).and_then(|socket| {
        // Reading nothing tells nothing of the flow.
        let socket = socket.filter(|_| len > 0);
        // SAFETY: as C promises; the kernel says EFAULT otherwise.
        after_read(socket, unsafe { libc::read(fd, bytes, len) })
    }))
}

/// `readv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    answer_len(before_read(fd, Whose::Any, 0).and_then(|socket| {
        // SAFETY: as C promises.
        after_read(socket, unsafe { libc::readv(fd, parts, count) })
    }))
}

/// `send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_send(fd: c_int, bytes: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    answer_len(before_write(fd, Whose::Socket, flags).and_then(|socket| {
        // SAFETY: as C promises; the kernel says EFAULT otherwise.
        after_write(socket, unsafe { libc::send(fd, bytes, len, flags) })
    }))
}

/// `sendmsg`: as of TCP, an address says nothing, and what is beside the bytes stays here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    answer_len(before_write(fd, Whose::Socket, flags).and_then(|socket| {
        if message.is_null() {
            return Err(Errno::EFAULT);
        }
        // SAFETY: as C promises.
        let mut bytes = unsafe { *message };
        (bytes.msg_name, bytes.msg_namelen) = (std::ptr::null_mut(), 0);
        (bytes.msg_control, bytes.msg_controllen) = (std::ptr::null_mut(), 0);
        // SAFETY: as C promises; the kernel says EFAULT otherwise.
        after_write(socket, unsafe { libc::sendmsg(fd, &raw const bytes, flags) })
    }))
}

/// `write`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t {
    answer_len(before_write(fd, Whose::Any, 0).and_then(|socket| {
        // SAFETY: as C promises; the kernel says EFAULT otherwise.
        after_write(socket, unsafe { libc::write(fd, bytes, len) })
    }))
}

/// `writev`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    answer_len(before_write(fd, Whose::Any, 0).and_then(|socket| {
        // SAFETY: as C promises.
        after_write(socket, unsafe { libc::writev(fd, parts, count) })
    }))
}

/// `sendfile`, as Linux has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_sendfile(out_fd: c_int, in_fd: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    answer_len(before_write(out_fd, Whose::Any, 0).and_then(|socket| {
        // SAFETY: as C promises.
        after_write(socket, unsafe { libc::sendfile(out_fd, in_fd, offset, count) })
    }))
}

// ---- Waiting. Descriptors are the kernel's, so it is the kernel's.

/// `select`, of any descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_select(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    // SAFETY: as C promises.
    unsafe { libc::select(count, read, write, except, timeout) }
}

/// `poll`, of any descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_poll(polled: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int {
    // SAFETY: as C promises.
    unsafe { libc::poll(polled, count, timeout) }
}

// ---- What a socket is, and is told.

/// `fcntl`, of any descriptor. The header lets the argument be left out.
#[unsafe(no_mangle)]
pub extern "C" fn d2tp_fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: a pointer in the argument is as C promises.
    unsafe { libc::fcntl(fd, command, argument) }
}

/// `ioctl`, of any descriptor: on a socket `FIONREAD` and `FIONBIO`.
#[unsafe(no_mangle)]
pub extern "C" fn d2tp_ioctl(fd: c_int, request: c_ulong, argument: c_long) -> c_int {
    answer(find_for(fd, Whose::Any).and_then(|socket| {
        if socket.is_some() && request != libc::FIONREAD as c_ulong && request != libc::FIONBIO as c_ulong {
            return Err(Errno::ENOTTY);
        }
        // SAFETY: a pointer in the argument is as C promises.
        last(unsafe { libc::ioctl(fd, request as _, argument) })
    }))
}

/// Options that the pair itself has.
fn is_native(level: c_int, name: c_int) -> bool {
    let names = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO, libc::SO_RCVLOWAT, libc::SO_SNDLOWAT];
    level == libc::SOL_SOCKET && names.contains(&name)
}

/// `getsockopt`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    answer(find(fd).and_then(|(_, socket)| {
        if is_native(level, name) {
            // SAFETY: as C promises.
            return last(unsafe { libc::getsockopt(fd, level, name, value, len) });
        }
        if value.is_null() || len.is_null() {
            return Err(Errno::EFAULT);
        }
        // SAFETY: as C promises.
        unsafe { give(&socket.option(level, name)?, value, len, false) }?;
        Ok(0)
    }))
}

/// `setsockopt`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    answer(find(fd).and_then(|(_, socket)| {
        if is_native(level, name) {
            // SAFETY: as C promises.
            return last(unsafe { libc::setsockopt(fd, level, name, value, len) });
        }
        // SAFETY: as C promises.
        socket.set_option(level, name, unsafe { bytes(value, len as size_t) }?)?;
        Ok(0)
    }))
}

/// `getsockname`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    answer(find(fd).and_then(|(_, socket)| {
        // SAFETY: as C promises.
        unsafe { give(&address::write(&socket.addresses().0), address.cast(), len, true) }?;
        Ok(0)
    }))
}

/// `getpeername`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    answer(find(fd).and_then(|(_, socket)| {
        let peer = socket.addresses().1.ok_or(Errno::ENOTCONN)?;
        // SAFETY: as C promises.
        unsafe { give(&address::write(&peer), address.cast(), len, true) }?;
        Ok(0)
    }))
}

/// The flow's 64 bits: together with the host they name it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_getflowid(fd: c_int, id: *mut u64) -> c_int {
    answer(find(fd).and_then(|(_, socket)| {
        let name = socket.name()?;
        if id.is_null() {
            return Err(Errno::EFAULT);
        }
        // SAFETY: C promises room for 64 bits.
        unsafe { id.write(name.flow.0) };
        Ok(0)
    }))
}

/// The device's 20 bytes, as this server knows it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d2tp_gethostid(fd: c_int, id: *mut u8) -> c_int {
    answer(find(fd).and_then(|(_, socket)| {
        let name = socket.name()?;
        if id.is_null() {
            return Err(Errno::EFAULT);
        }
        // SAFETY: C promises room for 20 bytes.
        unsafe { copy_nonoverlapping(name.device.0.as_ptr(), id, name.device.0.len()) };
        Ok(0)
    }))
}

/// Whether a descriptor is a socket of this library: 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn d2tp_isd2tpsocket(fd: c_int) -> c_int {
    c_int::from(find(fd).is_ok())
}
