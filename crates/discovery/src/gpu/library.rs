//! The part of NVML's C interface that discovery needs, loaded at run time.
//!
//! These are fifteen functions with plain C types that have not changed since driver 450 of 2020. The `nvml-wrapper`
//! crate covers hundreds of functions and has a dozen dependencies.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};

use super::answer::{NvmlAnswer, NvmlCard, NvmlSlice};

/// `nvmlReturn_t`.
type Status = c_int;
/// `nvmlDevice_t`.
type Device = *mut c_void;

const SUCCESS: Status = 0;
const NOT_SUPPORTED: Status = 3;
const NOT_FOUND: Status = 6;

/// `NVML_DEVICE_NAME_V2_BUFFER_SIZE` and `NVML_DEVICE_UUID_V2_BUFFER_SIZE`.
const TEXT_BYTES: usize = 96;

/// Maximum number of cards, in case the library returns an invalid number.
const MAX_CARDS: c_uint = 256;

/// Maximum number of parts of a card, in case the library returns an invalid number.
const MAX_SLICES: c_uint = 64;

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct MemoryInfo {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlPciInfo_t`, version 3.
#[repr(C)]
struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

type Text = unsafe extern "C" fn(Device, *mut c_char, c_uint) -> Status;
type Number = unsafe extern "C" fn(Device, *mut c_uint) -> Status;
type Child = unsafe extern "C" fn(Device, c_uint, *mut Device) -> Status;

/// NVML's functions; each field has the function's name without the prefix `nvml`.
struct Functions {
    init: unsafe extern "C" fn() -> Status,
    shutdown: unsafe extern "C" fn() -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    device_count: unsafe extern "C" fn(*mut c_uint) -> Status,
    device_by_index: unsafe extern "C" fn(c_uint, *mut Device) -> Status,
    name: Text,
    uuid: Text,
    memory: unsafe extern "C" fn(Device, *mut MemoryInfo) -> Status,
    pci: unsafe extern "C" fn(Device, *mut PciInfo) -> Status,
    minor: Number,
    /// Absent in drivers before 450, which do not support MIG.
    mig: Option<MigFunctions>,
}

/// Functions for cards in MIG mode.
struct MigFunctions {
    mode: unsafe extern "C" fn(Device, *mut c_uint, *mut c_uint) -> Status,
    max_count: Number,
    by_index: Child,
    gpu_instance: Number,
    compute_instance: Number,
}

/// Queries the cards from the first library that can be loaded. May never return.
///
/// # Errors
/// Returns a phrase whose subject is the library.
pub(super) fn ask(libraries: &[String]) -> Result<NvmlAnswer, String> {
    let functions = load(libraries)?;
    // SAFETY: the functions have the types that NVML documents, and initialization is the first call.
    let status = unsafe { (functions.init)() };
    functions.check(status).map_err(|error| format!("cannot start ({error})"))?;
    let answer = functions.cards().map_err(|error| format!("cannot list the cards ({error})"));
    // SAFETY: as above; no other function is called after this.
    unsafe { (functions.shutdown)() };
    answer
}

impl Functions {
    fn cards(&self) -> Result<NvmlAnswer, String> {
        let mut count = 0;
        // SAFETY: the function writes one number, which outlives the call. The same holds for all calls below.
        self.check(unsafe { (self.device_count)(&raw mut count) })?;
        let mut answer = NvmlAnswer::default();
        for index in 0..count.min(MAX_CARDS) {
            match self.card(index) {
                Ok(card) => answer.cards.push(card),
                Err(error) => {
                    answer.silent.push(format!("card {index} cannot be queried ({error}) and is not offered"));
                }
            }
        }
        Ok(answer)
    }

    fn card(&self, index: c_uint) -> Result<NvmlCard, String> {
        let mut device = std::ptr::null_mut();
        // SAFETY: see `cards`.
        self.check(unsafe { (self.device_by_index)(index, &raw mut device) })?;
        Ok(NvmlCard {
            uuid: self.text(self.uuid, device)?,
            name: self.text(self.name, device)?,
            memory_bytes: self.memory_bytes(device)?,
            pci: self.pci_address(device),
            minor: self.number(self.minor, device).ok(),
            slices: self.mig.as_ref().map_or(Ok(None), |mig| self.slices(mig, device))?,
        })
    }

    /// The parts of a card; `None` if the card is not in MIG mode.
    fn slices(&self, mig: &MigFunctions, card: Device) -> Result<Option<Vec<NvmlSlice>>, String> {
        let (mut current, mut after_reset) = (0, 0);
        // SAFETY: see `cards`.
        let status = unsafe { (mig.mode)(card, &raw mut current, &raw mut after_reset) };
        if status == NOT_SUPPORTED || (status == SUCCESS && current == 0) {
            return Ok(None);
        }
        self.check(status)?;
        let mut slices = Vec::new();
        for index in 0..self.number(mig.max_count, card)?.min(MAX_SLICES) {
            let mut device = std::ptr::null_mut();
            // SAFETY: see `cards`.
            let status = unsafe { (mig.by_index)(card, index, &raw mut device) };
            // Some slots for parts may be empty.
            if status == NOT_FOUND {
                continue;
            }
            self.check(status)?;
            slices.push(NvmlSlice {
                uuid: self.text(self.uuid, device)?,
                name: self.text(self.name, device)?,
                memory_bytes: self.memory_bytes(device)?,
                gpu_instance: self.number(mig.gpu_instance, device)?,
                compute_instance: self.number(mig.compute_instance, device)?,
            });
        }
        Ok(Some(slices))
    }

    fn text(&self, function: Text, device: Device) -> Result<String, String> {
        let mut buffer: [c_char; TEXT_BYTES] = [0; TEXT_BYTES];
        // SAFETY: the function writes at most as many bytes as the given size of the buffer.
        self.check(unsafe { function(device, buffer.as_mut_ptr(), TEXT_BYTES as c_uint) })?;
        Ok(until_nul(&buffer))
    }

    fn number(&self, function: Number, device: Device) -> Result<u32, String> {
        let mut number = 0;
        // SAFETY: see `cards`.
        self.check(unsafe { function(device, &raw mut number) })?;
        Ok(number)
    }

    /// Memory of a card in bytes; `None` for cards without dedicated memory.
    fn memory_bytes(&self, device: Device) -> Result<Option<u64>, String> {
        let mut memory = MemoryInfo::default();
        // SAFETY: see `cards`.
        match unsafe { (self.memory)(device, &raw mut memory) } {
            NOT_SUPPORTED => Ok(None),
            status => self.check(status).map(|()| Some(memory.total)),
        }
    }

    fn pci_address(&self, device: Device) -> Option<String> {
        let mut pci = PciInfo {
            bus_id_legacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pci_device_id: 0,
            pci_subsystem_id: 0,
            bus_id: [0; 32],
        };
        // SAFETY: see `cards`.
        let status = unsafe { (self.pci)(device, &raw mut pci) };
        (status == SUCCESS).then(|| until_nul(&pci.bus_id))
    }

    /// Returns an error if `status` is not a success, with the library's text for the error code.
    fn check(&self, status: Status) -> Result<(), String> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the function accepts any number.
        let text = unsafe { (self.error_string)(status) };
        if text.is_null() {
            return Err(format!("error {status}"));
        }
        // SAFETY: a non-null result is a static string of the library, which stays loaded.
        Err(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}

fn until_nul(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Loads the library and never unloads it, because its threads and handlers may outlive this use.
fn load(libraries: &[String]) -> Result<Functions, String> {
    let loaded = libraries.iter().filter_map(|name| CString::new(name.as_str()).ok()).find_map(|name| {
        // SAFETY: the name is a C string. Initialization code is from NVIDIA, or from users with write access to system
        // directories.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!library.is_null()).then_some(library)
    });
    let library = loaded.ok_or("cannot be loaded")?;
    // SAFETY: these are the names and types of NVML's interface.
    unsafe { functions(library) }.ok_or_else(|| "lacks functions that all drivers since 2018 provide".to_owned())
}

/// # Safety
/// `library` must be a loaded NVML.
unsafe fn functions(library: *mut c_void) -> Option<Functions> {
    // SAFETY: each field has the type that NVML documents for the function's name.
    unsafe {
        Some(Functions {
            init: function(library, c"nvmlInit_v2")?,
            shutdown: function(library, c"nvmlShutdown")?,
            error_string: function(library, c"nvmlErrorString")?,
            device_count: function(library, c"nvmlDeviceGetCount_v2")?,
            device_by_index: function(library, c"nvmlDeviceGetHandleByIndex_v2")?,
            name: function(library, c"nvmlDeviceGetName")?,
            uuid: function(library, c"nvmlDeviceGetUUID")?,
            memory: function(library, c"nvmlDeviceGetMemoryInfo")?,
            pci: function(library, c"nvmlDeviceGetPciInfo_v3")?,
            minor: function(library, c"nvmlDeviceGetMinorNumber")?,
            mig: mig_functions(library),
        })
    }
}

/// # Safety
/// Like [`functions`].
unsafe fn mig_functions(library: *mut c_void) -> Option<MigFunctions> {
    // SAFETY: as in `functions`.
    unsafe {
        Some(MigFunctions {
            mode: function(library, c"nvmlDeviceGetMigMode")?,
            max_count: function(library, c"nvmlDeviceGetMaxMigDeviceCount")?,
            by_index: function(library, c"nvmlDeviceGetMigDeviceHandleByIndex")?,
            gpu_instance: function(library, c"nvmlDeviceGetGpuInstanceId")?,
            compute_instance: function(library, c"nvmlDeviceGetComputeInstanceId")?,
        })
    }
}

/// # Safety
/// `F` must be a pointer to a function of the type that `name` has in `library`.
unsafe fn function<F: Copy>(library: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the library is loaded, and the name is a C string.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: both pointers have the same size, and the caller guarantees the type `F`.
    (!address.is_null()).then(|| unsafe { std::mem::transmute_copy(&address) })
}
