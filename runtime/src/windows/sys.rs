//! The calls of Windows.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle, RawHandle};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use windows_sys::Win32::Foundation::{
    FILETIME, HANDLE, HANDLE_FLAG_INHERIT, INVALID_HANDLE_VALUE, LocalFree, SetHandleInformation, WAIT_OBJECT_0,
};
use windows_sys::Win32::Security::Authorization::{
    ConvertStringSecurityDescriptorToSecurityDescriptorW, ConvertStringSidToSidW, SDDL_REVISION_1, SE_FILE_OBJECT,
    SetNamedSecurityInfoW,
};
use windows_sys::Win32::Security::{
    ACL, CreateRestrictedToken, DISABLE_MAX_PRIVILEGE, GetLengthSid, GetSecurityDescriptorSacl,
    LABEL_SECURITY_INFORMATION, LUA_TOKEN, PSECURITY_DESCRIPTOR, PSID, SID_AND_ATTRIBUTES, SetTokenInformation,
    TOKEN_ADJUST_DEFAULT, TOKEN_ASSIGN_PRIMARY, TOKEN_DUPLICATE, TOKEN_MANDATORY_LABEL, TOKEN_QUERY,
    TokenIntegrityLevel,
};
use windows_sys::Win32::Storage::FileSystem::{FILE_TYPE_CHAR, FILE_TYPE_PIPE, GetFileType};
use windows_sys::Win32::System::Com::CoTaskMemFree;
use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, CTRL_C_EVENT, CTRL_CLOSE_EVENT, GenerateConsoleCtrlEvent, GetConsoleMode, GetStdHandle,
    STD_ERROR_HANDLE, STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, SetConsoleCtrlHandler,
};
use windows_sys::Win32::System::Diagnostics::Debug::{SEM_FAILCRITICALERRORS, SEM_NOGPFAULTERRORBOX, SetErrorMode};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW, TH32CS_SNAPPROCESS,
};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_CPU_RATE_CONTROL_ENABLE,
    JOB_OBJECT_CPU_RATE_CONTROL_HARD_CAP, JOB_OBJECT_LIMIT_ACTIVE_PROCESS, JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION,
    JOB_OBJECT_LIMIT_JOB_MEMORY, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE, JOB_OBJECT_LIMIT_PROCESS_MEMORY,
    JOB_OBJECT_UILIMIT_DESKTOP, JOB_OBJECT_UILIMIT_DISPLAYSETTINGS, JOB_OBJECT_UILIMIT_EXITWINDOWS,
    JOB_OBJECT_UILIMIT_GLOBALATOMS, JOB_OBJECT_UILIMIT_HANDLES, JOB_OBJECT_UILIMIT_READCLIPBOARD,
    JOB_OBJECT_UILIMIT_SYSTEMPARAMETERS, JOB_OBJECT_UILIMIT_WRITECLIPBOARD, JOBOBJECT_BASIC_PROCESS_ID_LIST,
    JOBOBJECT_BASIC_UI_RESTRICTIONS, JOBOBJECT_CPU_RATE_CONTROL_INFORMATION, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JobObjectBasicProcessIdList, JobObjectBasicUIRestrictions, JobObjectCpuRateControlInformation,
    JobObjectExtendedLimitInformation, QueryInformationJobObject, SetInformationJobObject, TerminateJobObject,
};
use windows_sys::Win32::System::Pipes::PeekNamedPipe;
use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::SystemInformation::{ComputerNameDnsHostname, GetComputerNameExW};
use windows_sys::Win32::System::Threading::{
    CREATE_NEW_PROCESS_GROUP, CREATE_SUSPENDED, CREATE_UNICODE_ENVIRONMENT, CreateProcessAsUserW, CreateProcessW,
    DeleteProcThreadAttributeList, EXTENDED_STARTUPINFO_PRESENT, GetCurrentProcess, GetExitCodeProcess,
    GetProcessTimes, INFINITE, InitializeProcThreadAttributeList, LPPROC_THREAD_ATTRIBUTE_LIST, OpenProcess,
    OpenProcessToken, PROC_THREAD_ATTRIBUTE_HANDLE_LIST, PROCESS_INFORMATION, PROCESS_QUERY_LIMITED_INFORMATION,
    PROCESS_VM_READ, QueryFullProcessImageNameW, ResumeThread, STARTF_USESTDHANDLES, STARTUPINFOEXW, TerminateProcess,
    UpdateProcThreadAttribute, WaitForSingleObject,
};
use windows_sys::Win32::System::WindowsProgramming::GetUserNameW;
use windows_sys::Win32::UI::Shell::{FOLDERID_Profile, FOLDERID_ProgramFiles, SHGetKnownFolderPath};
use windows_sys::core::{BOOL, GUID};

use crate::windows_plan::JobLimits;

fn done(result: BOOL) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A text of the system, with its NUL.
fn wide(text: impl AsRef<std::ffi::OsStr>) -> Vec<u16> {
    text.as_ref().encode_wide().chain([0]).collect()
}

/// A job object; every process of it ends with its last handle.
#[derive(Debug)]
pub struct Job(OwnedHandle);

impl Job {
    /// A new one, without a name, that ends its processes when it is closed; no process of it can leave it.
    pub fn new() -> io::Result<Job> {
        // SAFETY: both arguments may be null.
        let handle = unsafe { CreateJobObjectW(null(), null()) };
        if handle.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has made this handle, and nobody else knows it.
        let job = Job(unsafe { OwnedHandle::from_raw_handle(handle) });
        job.set_limits(&JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default(), 0)?;
        Ok(job)
    }

    /// Memory and processes.
    pub fn limit(&self, limits: &JobLimits) -> io::Result<()> {
        let mut info = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        info.BasicLimitInformation.ActiveProcessLimit = limits.processes;
        info.JobMemoryLimit = limits.job_memory;
        info.ProcessMemoryLimit = limits.process_memory;
        let flags = JOB_OBJECT_LIMIT_ACTIVE_PROCESS | JOB_OBJECT_LIMIT_JOB_MEMORY | JOB_OBJECT_LIMIT_PROCESS_MEMORY;
        self.set_limits(&info, flags)
    }

    fn set_limits(&self, info: &JOBOBJECT_EXTENDED_LIMIT_INFORMATION, flags: u32) -> io::Result<()> {
        let mut info = *info;
        // Not JOB_OBJECT_LIMIT_BREAKAWAY_OK: who asks for a way out gets an error.
        info.BasicLimitInformation.LimitFlags =
            flags | JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION;
        self.set(JobObjectExtendedLimitInformation, &info)
    }

    /// No clipboard, no windows of others, no settings of the display, no logging off.
    pub fn restrict_ui(&self) -> io::Result<()> {
        let limits = JOB_OBJECT_UILIMIT_DESKTOP
            | JOB_OBJECT_UILIMIT_DISPLAYSETTINGS
            | JOB_OBJECT_UILIMIT_EXITWINDOWS
            | JOB_OBJECT_UILIMIT_GLOBALATOMS
            | JOB_OBJECT_UILIMIT_HANDLES
            | JOB_OBJECT_UILIMIT_READCLIPBOARD
            | JOB_OBJECT_UILIMIT_SYSTEMPARAMETERS
            | JOB_OBJECT_UILIMIT_WRITECLIPBOARD;
        self.set(JobObjectBasicUIRestrictions, &JOBOBJECT_BASIC_UI_RESTRICTIONS { UIRestrictionsClass: limits })
    }

    /// Of 10,000 cycles of all processors, how many.
    pub fn cap_cpu(&self, rate: u32) -> io::Result<()> {
        let mut info = JOBOBJECT_CPU_RATE_CONTROL_INFORMATION {
            ControlFlags: JOB_OBJECT_CPU_RATE_CONTROL_ENABLE | JOB_OBJECT_CPU_RATE_CONTROL_HARD_CAP,
            ..Default::default()
        };
        info.Anonymous.CpuRate = rate;
        self.set(JobObjectCpuRateControlInformation, &info)
    }

    fn set<T>(&self, class: i32, info: &T) -> io::Result<()> {
        let size = u32::try_from(size_of::<T>()).map_err(io::Error::other)?;
        // SAFETY: the handle is open, and `info` is `size` bytes of the type that goes with the class, as the callers above have it.
        done(unsafe { SetInformationJobObject(self.0.as_raw_handle(), class, std::ptr::from_ref(info).cast(), size) })
    }

    /// Takes a process in.
    pub fn take(&self, process: &OwnedHandle) -> io::Result<()> {
        // SAFETY: both handles are open.
        done(unsafe { AssignProcessToJobObject(self.0.as_raw_handle(), process.as_raw_handle()) })
    }

    /// Ends every process of it.
    pub fn terminate(&self, code: u32) {
        // SAFETY: the handle is open. That it has no process any more is no error that matters.
        let _ = unsafe { TerminateJobObject(self.0.as_raw_handle(), code) };
    }

    /// The ids of its processes; a thousand at most.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        const MOST: usize = 1000;
        // Of the list's alignment: two counters of four bytes and ids as large as a pointer.
        let mut room = vec![0_usize; 1 + MOST];
        let size = u32::try_from(room.len() * size_of::<usize>()).map_err(io::Error::other)?;
        let list: *mut JOBOBJECT_BASIC_PROCESS_ID_LIST = room.as_mut_ptr().cast();
        // SAFETY: the handle is open and `room` has `size` writable bytes, aligned for the list.
        done(unsafe {
            QueryInformationJobObject(
                self.0.as_raw_handle(),
                JobObjectBasicProcessIdList,
                list.cast(),
                size,
                null_mut(),
            )
        })?;
        // SAFETY: all of `room` was initialised, and the counters are its first eight bytes.
        let count = unsafe { (*list).NumberOfProcessIdsInList } as usize;
        let first = std::mem::offset_of!(JOBOBJECT_BASIC_PROCESS_ID_LIST, ProcessIdList) / size_of::<usize>();
        Ok(room[first..].iter().take(count).filter_map(|id| u32::try_from(*id).ok()).collect())
    }
}

/// What a process may.
#[derive(Debug)]
pub struct Token(OwnedHandle);

impl Token {
    /// That of this process, without privileges and without what being an administrator brings.
    pub fn restricted() -> io::Result<Token> {
        let mut own: HANDLE = null_mut();
        let access = TOKEN_DUPLICATE | TOKEN_QUERY | TOKEN_ASSIGN_PRIMARY | TOKEN_ADJUST_DEFAULT;
        // SAFETY: the pseudo handle of this process needs no closing; `own` is writable.
        done(unsafe { OpenProcessToken(GetCurrentProcess(), access, &raw mut own) })?;
        // SAFETY: the call has made this handle, and nobody else knows it.
        let own = unsafe { OwnedHandle::from_raw_handle(own) };
        let mut less: HANDLE = null_mut();
        let flags = DISABLE_MAX_PRIVILEGE | LUA_TOKEN;
        // SAFETY: the handle is open, every list is empty and may be null then, `less` is writable.
        done(unsafe {
            CreateRestrictedToken(own.as_raw_handle(), flags, 0, null(), 0, null(), 0, null(), &raw mut less)
        })?;
        // SAFETY: as above.
        Ok(Token(unsafe { OwnedHandle::from_raw_handle(less) }))
    }

    /// Low integrity: nothing of the user's can be written that is not labelled so.
    pub fn lower(&self) -> io::Result<()> {
        let name = wide("S-1-16-4096");
        let mut sid: PSID = null_mut();
        // SAFETY: `name` ends with NUL, `sid` is writable.
        done(unsafe { ConvertStringSidToSidW(name.as_ptr(), &raw mut sid) })?;
        /// SE_GROUP_INTEGRITY.
        const INTEGRITY: u32 = 0x20;
        let label = TOKEN_MANDATORY_LABEL { Label: SID_AND_ATTRIBUTES { Sid: sid, Attributes: INTEGRITY } };
        // SAFETY: the handle is open; `label` and the SID that it points to live until the call is over, and the size counts both.
        let result = done(unsafe {
            let size = size_of::<TOKEN_MANDATORY_LABEL>() as u32 + GetLengthSid(sid);
            SetTokenInformation(self.0.as_raw_handle(), TokenIntegrityLevel, (&raw const label).cast(), size)
        });
        // SAFETY: the SID was allocated by the call above and is used no more.
        unsafe { LocalFree(sid) };
        result
    }
}

/// Labels a directory, and what will be made in it, so that a process of low integrity may write it.
pub fn label_low(path: &Path) -> io::Result<()> {
    let text = wide("S:(ML;OICI;NW;;;LW)");
    let path = wide(path);
    let mut descriptor: PSECURITY_DESCRIPTOR = null_mut();
    // SAFETY: `text` ends with NUL, `descriptor` is writable, the size is not asked for.
    done(unsafe {
        ConvertStringSecurityDescriptorToSecurityDescriptorW(
            text.as_ptr(),
            SDDL_REVISION_1,
            &raw mut descriptor,
            null_mut(),
        )
    })?;
    let (mut present, mut defaulted, mut list): (BOOL, BOOL, *mut ACL) = (0, 0, null_mut());
    // SAFETY: the descriptor is that of the call above, all else is writable.
    let found =
        done(unsafe { GetSecurityDescriptorSacl(descriptor, &raw mut present, &raw mut list, &raw mut defaulted) });
    let labelled = found.and_then(|()| {
        // SAFETY: `path` ends with NUL, and the list lives in the descriptor.
        let code = unsafe {
            SetNamedSecurityInfoW(
                path.as_ptr(),
                SE_FILE_OBJECT,
                LABEL_SECURITY_INFORMATION,
                null_mut(),
                null_mut(),
                null(),
                list,
            )
        };
        if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.cast_signed())) }
    });
    // SAFETY: the descriptor was allocated by the first call and is used no more.
    unsafe { LocalFree(descriptor) };
    labelled
}

/// What a process is started by.
pub struct Start<'a> {
    /// Its program.
    pub program: &'a Path,
    /// Its command line.
    pub line: &'a str,
    /// Its environment, in the system's form.
    pub environment: &'a [u16],
    /// Where it starts.
    pub workdir: &'a Path,
    /// Its standard input, output and error, and nothing else that it inherits.
    pub stdio: [&'a File; 3],
    /// What it may; none where it may what this process may.
    pub token: Option<&'a Token>,
}

/// A process that is there and has not run yet, or that runs.
#[derive(Debug)]
pub struct Process {
    handle: OwnedHandle,
    thread: Option<OwnedHandle>,
    /// Its id, which is that of its group of console processes too.
    pub id: u32,
}

impl Process {
    /// Starts it suspended, as the first of a group of its own.
    pub fn start(start: &Start<'_>) -> io::Result<Process> {
        let handles: [RawHandle; 3] = start.stdio.map(AsRawHandle::as_raw_handle);
        for handle in handles {
            // SAFETY: the handles are open.
            done(unsafe { SetHandleInformation(handle, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT) })?;
        }
        let mut size = 0;
        // SAFETY: without a list the call says how much room one needs.
        unsafe { InitializeProcThreadAttributeList(null_mut(), 1, 0, &raw mut size) };
        let mut room = vec![0_usize; size.div_ceil(size_of::<usize>())];
        let list: LPPROC_THREAD_ATTRIBUTE_LIST = room.as_mut_ptr().cast();
        // SAFETY: `room` has the size that was asked for.
        done(unsafe { InitializeProcThreadAttributeList(list, 1, 0, &raw mut size) })?;
        let started = Process::start_with(start, &handles, list);
        // SAFETY: the list was initialised above and is used no more.
        unsafe { DeleteProcThreadAttributeList(list) };
        started
    }

    fn start_with(
        start: &Start<'_>,
        handles: &[RawHandle; 3],
        list: LPPROC_THREAD_ATTRIBUTE_LIST,
    ) -> io::Result<Process> {
        // SAFETY: the list has room for one attribute; `handles` outlives it, as the caller has it.
        done(unsafe {
            let value = handles.as_ptr().cast::<c_void>();
            let attribute = PROC_THREAD_ATTRIBUTE_HANDLE_LIST as usize;
            UpdateProcThreadAttribute(list, 0, attribute, value, size_of_val(handles), null_mut(), null())
        })?;
        let mut info = STARTUPINFOEXW { lpAttributeList: list, ..Default::default() };
        info.StartupInfo.cb = size_of::<STARTUPINFOEXW>() as u32;
        info.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
        [info.StartupInfo.hStdInput, info.StartupInfo.hStdOutput, info.StartupInfo.hStdError] = *handles;
        let (program, mut line, workdir) = (wide(start.program), wide(start.line), wide(start.workdir));
        let flags =
            CREATE_SUSPENDED | CREATE_NEW_PROCESS_GROUP | CREATE_UNICODE_ENVIRONMENT | EXTENDED_STARTUPINFO_PRESENT;
        let mut made = PROCESS_INFORMATION::default();
        let environment = start.environment.as_ptr().cast::<c_void>();
        let si = (&raw const info).cast();
        // SAFETY: every text ends with NUL and lives until the call is over, `line` is writable as the call asks, the environment ends with
        // two NULs, the flags say that `info` is the larger structure, and the token, where there is one, is open.
        done(unsafe {
            match start.token {
                Some(token) => CreateProcessAsUserW(
                    token.0.as_raw_handle(),
                    program.as_ptr(),
                    line.as_mut_ptr(),
                    null(),
                    null(),
                    1,
                    flags,
                    environment,
                    workdir.as_ptr(),
                    si,
                    &raw mut made,
                ),
                None => CreateProcessW(
                    program.as_ptr(),
                    line.as_mut_ptr(),
                    null(),
                    null(),
                    1,
                    flags,
                    environment,
                    workdir.as_ptr(),
                    si,
                    &raw mut made,
                ),
            }
        })?;
        // SAFETY: the call has made both handles, and nobody else knows them.
        let (handle, thread) =
            unsafe { (OwnedHandle::from_raw_handle(made.hProcess), OwnedHandle::from_raw_handle(made.hThread)) };
        Ok(Process { handle, thread: Some(thread), id: made.dwProcessId })
    }

    /// Its handle.
    pub fn handle(&self) -> &OwnedHandle {
        &self.handle
    }

    /// Lets it run.
    pub fn resume(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        // SAFETY: the handle is open.
        if unsafe { ResumeThread(thread.as_raw_handle()) } == u32::MAX {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Its exit code, once it has ended; waits for it this long at most.
    pub fn ended(&self, patience: Duration) -> io::Result<Option<u32>> {
        let patience = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX - 1);
        // SAFETY: the handle is open.
        if unsafe { WaitForSingleObject(self.handle.as_raw_handle(), patience) } != WAIT_OBJECT_0 {
            return Ok(None);
        }
        let mut code = 0;
        // SAFETY: the handle is open, `code` is writable.
        done(unsafe { GetExitCodeProcess(self.handle.as_raw_handle(), &raw mut code) })?;
        Ok(Some(code))
    }

    /// Rings once it has ended.
    pub fn ring_at_its_end(&self) -> io::Result<()> {
        let handle = self.handle.try_clone()?;
        std::thread::Builder::new().spawn(move || {
            // SAFETY: the handle is open until this thread drops it.
            unsafe { WaitForSingleObject(handle.as_raw_handle(), INFINITE) };
            super::streams::ring();
        })?;
        Ok(())
    }

    /// Ends it alone.
    pub fn end(&self) {
        // SAFETY: the handle is open. That it has ended is no error that matters.
        let _ = unsafe { TerminateProcess(self.handle.as_raw_handle(), 1) };
    }

    /// Asks it and what it has started to end, as Ctrl+Break does. They have to have the console of this process.
    pub fn send_break(&self) -> io::Result<()> {
        // SAFETY: a call without pointers.
        done(unsafe { GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, self.id) })
    }
}

/// What a process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Committed memory, bytes.
    pub memory: u64,
    /// The most of it that was in use at once, bytes.
    pub peak: u64,
    /// User and kernel time.
    pub cpu_time: Duration,
    /// When it was started, to tell it from another with its id.
    pub started: u64,
}

/// Looks at a process; none where it is gone.
pub fn uses(id: u32) -> Option<Uses> {
    // SAFETY: a call without pointers.
    let handle = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_VM_READ, 0, id) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: the call has made this handle, and nobody else knows it.
    let process = unsafe { OwnedHandle::from_raw_handle(handle) };
    let size = size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
    let mut memory = PROCESS_MEMORY_COUNTERS { cb: size, ..Default::default() };
    // SAFETY: the handle is open, `memory` is writable and of that size.
    done(unsafe { K32GetProcessMemoryInfo(process.as_raw_handle(), &raw mut memory, size) }).ok()?;
    let zero = FILETIME::default();
    let (mut made, mut ended, mut kernel, mut user) = (zero, zero, zero, zero);
    // SAFETY: the handle is open, all four are writable.
    done(unsafe {
        GetProcessTimes(process.as_raw_handle(), &raw mut made, &raw mut ended, &raw mut kernel, &raw mut user)
    })
    .ok()?;
    // In hundreds of nanoseconds.
    let ticks = |time: FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    Some(Uses {
        memory: memory.PagefileUsage.max(memory.WorkingSetSize) as u64,
        peak: memory.PeakWorkingSetSize as u64,
        cpu_time: Duration::from_nanos((ticks(kernel) + ticks(user)).saturating_mul(100)),
        started: ticks(made),
    })
}

/// The last word of a console; none is 0.
static TOLD: AtomicI32 = AtomicI32::new(0);

/// From here on Ctrl+C, Ctrl+Break and the end of the console are words to be read.
pub fn take_console() -> io::Result<()> {
    // SAFETY: the handler is a function for the whole life of the process. It is called by a thread of its own.
    done(unsafe { SetConsoleCtrlHandler(Some(heard), 1) })
}

unsafe extern "system" fn heard(event: u32) -> BOOL {
    let signal = match event {
        CTRL_C_EVENT => super::SIGINT,
        CTRL_BREAK_EVENT => super::SIGQUIT,
        CTRL_CLOSE_EVENT => super::SIGHUP,
        _ => super::SIGTERM,
    };
    TOLD.store(signal, Ordering::SeqCst);
    super::streams::ring();
    1
}

/// The next word of the console.
pub fn told() -> Option<i32> {
    Some(TOLD.swap(0, Ordering::SeqCst)).filter(|signal| *signal != 0)
}

/// Whether one waits.
pub fn is_told() -> bool {
    TOLD.load(Ordering::SeqCst) != 0
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A pipe, or a socket.
    Pipe,
    /// A console.
    Console,
    /// Anything else.
    Other,
}

/// Looks what it is.
pub fn file_kind(file: &File) -> FileKind {
    let mut mode = 0;
    // SAFETY: the handle is open.
    match unsafe { GetFileType(file.as_raw_handle()) } {
        FILE_TYPE_PIPE => FileKind::Pipe,
        // SAFETY: the handle is open, `mode` is writable.
        FILE_TYPE_CHAR if unsafe { GetConsoleMode(file.as_raw_handle(), &raw mut mode) } != 0 => FileKind::Console,
        _ => FileKind::Other,
    }
}

/// Whether a pipe's other end is open still.
pub fn has_a_writer(pipe: &File) -> bool {
    // SAFETY: the handle is open; nothing is asked for, so that everything may be null.
    done(unsafe { PeekNamedPipe(pipe.as_raw_handle(), null_mut(), 0, null_mut(), null_mut(), null_mut()) }).is_ok()
}

/// Keeps this process's own streams from whatever is started with others in their place.
pub fn keep_own_streams() {
    for stream in [STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE] {
        // SAFETY: calls without pointers; where there is no such handle nothing is changed.
        unsafe { SetHandleInformation(GetStdHandle(stream), HANDLE_FLAG_INHERIT, 0) };
    }
}

/// What crashes from here on ends without a window.
pub fn without_windows_of_errors() {
    // SAFETY: a call without pointers.
    unsafe { SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX) };
}

/// Every process that is there, each with the one that started it; another may have that number by now.
pub fn processes() -> Option<Vec<(u32, u32)>> {
    // SAFETY: a call without pointers.
    let handle = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0) };
    if handle == INVALID_HANDLE_VALUE {
        return None;
    }
    // SAFETY: the call has made this handle, and nobody else knows it.
    let all = unsafe { OwnedHandle::from_raw_handle(handle) };
    let mut entry = PROCESSENTRY32W { dwSize: size_of::<PROCESSENTRY32W>() as u32, ..Default::default() };
    let mut found = Vec::new();
    // SAFETY: the handle is open, `entry` is writable and says its size.
    let mut more = unsafe { Process32FirstW(all.as_raw_handle(), &raw mut entry) };
    while more != 0 {
        found.push((entry.th32ProcessID, entry.th32ParentProcessID));
        // SAFETY: as above.
        more = unsafe { Process32NextW(all.as_raw_handle(), &raw mut entry) };
    }
    Some(found)
}

/// The process that started this one, where that is still there.
pub fn parent() -> Option<u32> {
    let own = std::process::id();
    let (_, parent) = processes()?.into_iter().find(|(id, _)| *id == own)?;
    (uses(parent)?.started <= uses(own)?.started).then_some(parent)
}

/// The program of a process; none where nobody says.
pub fn program_of(id: u32) -> Option<PathBuf> {
    // SAFETY: a call without pointers.
    let handle = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, id) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: the call has made this handle, and nobody else knows it.
    let process = unsafe { OwnedHandle::from_raw_handle(handle) };
    let mut name = vec![0_u16; 32_768];
    let mut length = name.len() as u32;
    // SAFETY: the handle is open, `name` has the room that is stated.
    done(unsafe { QueryFullProcessImageNameW(process.as_raw_handle(), 0, name.as_mut_ptr(), &raw mut length) }).ok()?;
    Some(std::ffi::OsString::from_wide(&name[..length as usize]).into())
}

/// The name of this machine.
pub fn host_name() -> String {
    let mut name = vec![0_u16; 256];
    let mut length = name.len() as u32;
    // SAFETY: `name` has the room that is stated.
    let told = unsafe { GetComputerNameExW(ComputerNameDnsHostname, name.as_mut_ptr(), &raw mut length) };
    if told == 0 { String::new() } else { String::from_utf16_lossy(&name[..length as usize]) }
}

/// The name of the user of this process, since users have no numbers.
pub fn user() -> String {
    let mut name = vec![0_u16; 257];
    let mut length = name.len() as u32;
    // SAFETY: `name` has the room that is stated.
    let told = unsafe { GetUserNameW(name.as_mut_ptr(), &raw mut length) };
    // The length counts the NUL.
    if told == 0 { String::new() } else { String::from_utf16_lossy(&name[..(length as usize).saturating_sub(1)]) }
}

/// Where an administrator alone writes, whatever the environment says.
///
/// # Errors
/// The system's.
pub fn program_files() -> io::Result<PathBuf> {
    known_folder(&FOLDERID_ProgramFiles)
}

/// The home directory of this process's user, whatever the environment says.
///
/// # Errors
/// The system's.
pub fn home_of_account() -> io::Result<PathBuf> {
    known_folder(&FOLDERID_Profile)
}

fn known_folder(id: &GUID) -> io::Result<PathBuf> {
    let mut text: *mut u16 = null_mut();
    // SAFETY: `id` lives until the call is over, the token may be null, `text` is writable.
    let code = unsafe { SHGetKnownFolderPath(id, 0, null_mut(), &raw mut text) };
    let found = match code {
        0 => {
            let mut length = 0;
            // SAFETY: the call has made a text that ends with NUL.
            while unsafe { *text.add(length) } != 0 {
                length += 1;
            }
            // SAFETY: as above.
            Ok(std::ffi::OsString::from_wide(unsafe { std::slice::from_raw_parts(text, length) }).into())
        }
        code => Err(io::Error::from_raw_os_error(code)),
    };
    // SAFETY: it is to be freed also where the call failed, and is used no more.
    unsafe { CoTaskMemFree(text.cast()) };
    found
}
