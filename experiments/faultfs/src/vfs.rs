//! The table of C functions through which SQLite uses a [`Disk`].

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::slice;
use std::sync::Mutex;

use rusqlite::ffi;

use crate::disk::{Disk, Failure, FileId};
use crate::{NotRegistered, lock};

/// An open file as SQLite allocates it: SQLite's part first, then ours.
#[repr(C)]
struct OpenFile {
    base: ffi::sqlite3_file,
    disk: &'static Mutex<Disk>,
    id: FileId,
    /// The next sync is the first of a journal or log opened for creation: it syncs the folder,
    /// too.
    sync_folder: bool,
}

const MAX_PATH: c_int = 512;
/// As in SQLite's Unix VFS.
const SECTOR_SIZE: c_int = 4096;

pub(crate) fn register(name: &str, disk: &'static Mutex<Disk>) -> Result<(), NotRegistered> {
    let name = CString::new(name).map_err(|_| NotRegistered)?;
    let vfs = ffi::sqlite3_vfs {
        iVersion: 1,
        szOsFile: c_int::try_from(size_of::<OpenFile>()).map_err(|_| NotRegistered)?,
        mxPathname: MAX_PATH,
        pNext: ptr::null_mut(),
        zName: name.into_raw(),
        pAppData: ptr::from_ref(disk).cast_mut().cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_path_name),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: None,
        xCurrentTimeInt64: None,
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    };
    let vfs = Box::leak(Box::new(vfs));
    // SAFETY: the table, its name and the disk are leaked, so they live as long as SQLite may use
    // them; all functions that version 1 of the interface requires are there. SQLite copies nothing
    // and writes only to `pNext`, under its own lock.
    match unsafe { ffi::sqlite3_vfs_register(vfs, 0) } {
        ffi::SQLITE_OK => Ok(()),
        _ => Err(NotRegistered),
    }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    // Version 1 has no shared memory: a write-ahead log needs `locking_mode=EXCLUSIVE`.
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock_file),
    xUnlock: Some(lock_file),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// # Safety
/// `vfs` is the table that [`register`] made.
unsafe fn disk_of(vfs: *mut ffi::sqlite3_vfs) -> &'static Mutex<Disk> {
    // SAFETY: `pAppData` was made from a `&'static Mutex<Disk>` and is never changed.
    unsafe { &*(*vfs).pAppData.cast::<Mutex<Disk>>() }
}

/// # Safety
/// `file` was filled in by [`open`] and is not closed.
unsafe fn file_of<'a>(file: *mut ffi::sqlite3_file) -> &'a mut OpenFile {
    // SAFETY: SQLite allocated `szOsFile` bytes, aligned for 8-byte values, and `open` wrote an
    // `OpenFile` there. SQLite uses a file from one thread at a time, so the borrow is unique.
    unsafe { &mut *file.cast::<OpenFile>() }
}

/// # Safety
/// `name` points to a string that ends with a zero byte and outlives the call.
unsafe fn name_of<'a>(name: *const c_char) -> &'a str {
    // SAFETY: promised by the caller.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().unwrap_or("not UTF-8")
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: `file` has room for a `sqlite3_file`. Without methods SQLite does not call `close` on
    // a file that was not opened.
    unsafe { (*file).pMethods = ptr::null() };
    // SAFETY: SQLite passes the table that was registered.
    let disk = unsafe { disk_of(vfs) };
    let create = flags & ffi::SQLITE_OPEN_CREATE != 0;
    let opened = if name.is_null() {
        lock(disk).open_temporary().map(Some)
    } else {
        // SAFETY: SQLite passes a C string that lives until the file is closed.
        lock(disk).open(unsafe { name_of(name) }, create)
    };
    let Ok(Some(id)) = opened else {
        return ffi::SQLITE_CANTOPEN;
    };
    let log = ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL | ffi::SQLITE_OPEN_WAL;
    let sync_folder = create && flags & log != 0;
    let base = ffi::sqlite3_file { pMethods: &METHODS };
    // SAFETY: SQLite allocated `szOsFile` bytes at `file`, aligned for 8-byte values.
    unsafe { file.cast::<OpenFile>().write(OpenFile { base, disk, id, sync_folder }) };
    if !out_flags.is_null() {
        // SAFETY: not null, so it points to where the flags are wanted.
        unsafe { *out_flags = flags };
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    sync_folder: c_int,
) -> c_int {
    // SAFETY: SQLite passes the registered table and a C string.
    let (disk, name) = unsafe { (disk_of(vfs), name_of(name)) };
    match lock(disk).delete(name, sync_folder & 1 != 0) {
        Ok(true) => ffi::SQLITE_OK,
        Ok(false) => ffi::SQLITE_IOERR_DELETE_NOENT,
        Err(_) => ffi::SQLITE_IOERR_DELETE,
    }
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    _flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes the registered table and a C string.
    let (disk, name) = unsafe { (disk_of(vfs), name_of(name)) };
    let Ok(exists) = lock(disk).exists(name) else {
        return ffi::SQLITE_IOERR_ACCESS;
    };
    // SAFETY: SQLite passes where the answer is wanted.
    unsafe { *out = c_int::from(exists) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_path_name(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: SQLite passes a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    if name.len() > usize::try_from(room).unwrap_or(0) {
        return ffi::SQLITE_CANTOPEN;
    }
    // SAFETY: `out` has `room` bytes, which is enough, and does not overlap `name`.
    unsafe { ptr::copy_nonoverlapping(name.as_ptr().cast(), out, name.len()) };
    ffi::SQLITE_OK
}

/// Required by the interface; SQLite seeds its generator from the default VFS.
unsafe extern "C" fn randomness(_: *mut ffi::sqlite3_vfs, count: c_int, out: *mut c_char) -> c_int {
    let room = usize::try_from(count).unwrap_or(0);
    // SAFETY: `out` has `count` bytes.
    unsafe { ptr::write_bytes(out, 0x5a, room) };
    count
}

unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    microseconds
}

/// 1970-01-01 as a Julian day: the time is constant, so that every run is the same.
unsafe extern "C" fn current_time(_: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: SQLite passes where the time is wanted.
    unsafe { *out = 2_440_587.5 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(_file: *mut ffi::sqlite3_file) -> c_int {
    // `OpenFile` owns nothing, and SQLite frees its memory.
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    out: *mut c_void,
    count: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite passes an open file.
    let file = unsafe { file_of(file) };
    let (Ok(count), Ok(at)) = (usize::try_from(count), usize::try_from(at)) else {
        return ffi::SQLITE_IOERR_READ;
    };
    // SAFETY: `out` has room for `count` bytes, which SQLite initialised or which are plain memory,
    // and no other thread uses them during the call.
    let out = unsafe {
        ptr::write_bytes(out.cast::<u8>(), 0, count);
        slice::from_raw_parts_mut(out.cast::<u8>(), count)
    };
    match lock(file.disk).read(file.id, at, out) {
        Ok(true) => ffi::SQLITE_OK,
        Ok(false) => ffi::SQLITE_IOERR_SHORT_READ,
        Err(_) => ffi::SQLITE_IOERR_READ,
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    bytes: *const c_void,
    count: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite passes an open file.
    let file = unsafe { file_of(file) };
    let (Ok(count), Ok(at)) = (usize::try_from(count), usize::try_from(at)) else {
        return ffi::SQLITE_IOERR_WRITE;
    };
    // SAFETY: SQLite passes `count` bytes that do not change during the call.
    let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), count) };
    done(lock(file.disk).write(file.id, at, bytes), ffi::SQLITE_IOERR_WRITE)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, to: ffi::sqlite3_int64) -> c_int {
    // SAFETY: SQLite passes an open file.
    let file = unsafe { file_of(file) };
    let Ok(to) = usize::try_from(to) else {
        return ffi::SQLITE_IOERR_TRUNCATE;
    };
    done(lock(file.disk).truncate(file.id, to), ffi::SQLITE_IOERR_TRUNCATE)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: SQLite passes an open file.
    let file = unsafe { file_of(file) };
    let outcome = lock(file.disk).sync(file.id, file.sync_folder);
    if outcome.is_ok() {
        file.sync_folder = false;
    }
    done(outcome, ffi::SQLITE_IOERR_FSYNC)
}

unsafe extern "C" fn file_size(
    file: *mut ffi::sqlite3_file,
    out: *mut ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite passes an open file.
    let file = unsafe { file_of(file) };
    let Ok(length) = lock(file.disk).len(file.id) else {
        return ffi::SQLITE_IOERR_FSTAT;
    };
    // SAFETY: SQLite passes where the length is wanted.
    unsafe { *out = ffi::sqlite3_int64::try_from(length).unwrap_or(ffi::sqlite3_int64::MAX) };
    ffi::SQLITE_OK
}

/// There is one connection at a time, so every lock is free.
unsafe extern "C" fn lock_file(_: *mut ffi::sqlite3_file, _level: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(_: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: SQLite passes where the answer is wanted.
    unsafe { *out = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(
    _: *mut ffi::sqlite3_file,
    _operation: c_int,
    _argument: *mut c_void,
) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    SECTOR_SIZE
}

unsafe extern "C" fn device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

fn done(outcome: Result<(), Failure>, error: c_int) -> c_int {
    match outcome {
        Ok(()) => ffi::SQLITE_OK,
        Err(Failure::Full) => ffi::SQLITE_FULL,
        Err(Failure::Off) => error,
    }
}
