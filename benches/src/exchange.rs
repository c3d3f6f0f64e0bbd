//! Export + release and import + release of a 4-d CPU tensor, in one run beside a hand-written C producer with
//! one malloc and the crate dlpark. Both C libraries are loaded as a user's program loads them.

use dlpark::ffi::{DLDataType, DLDevice, DLManagedTensorVersioned, DLTensor};
use dlpark::{metadata, versioned};
use std::ffi::{CString, c_void};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

type Managed = DLManagedTensorVersioned;
type Release = unsafe extern "C" fn(*mut c_void);
type Export = unsafe extern "C" fn(*const DLTensor, u64, u32, *mut c_void, Release, *mut *mut Managed) -> i32;
type Import = unsafe extern "C" fn(*mut Managed, *const c_void, *mut *mut Managed) -> i32;

const READ_ONLY: u32 = 1;
const ROUNDS: usize = 41;
const TIMES: usize = 100_000;

unsafe extern "C" fn release(owner: *mut c_void) {
    // SAFETY: the owner is always the counter in main.
    unsafe { *owner.cast::<u64>() += 1 }
}

/// A function of a shared library.
fn load<F: Copy>(library: &Path, name: &str) -> F {
    let path = CString::new(library.to_str().expect("a path in UTF-8")).expect("no NUL");
    let name = CString::new(name).expect("no NUL");
    // SAFETY: both libraries are ours; F is the type that their headers give the function.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!handle.is_null(), "{path:?} cannot be loaded: run `make bench`");
        let symbol = libc::dlsym(handle, name.as_ptr());
        assert!(!symbol.is_null(), "{name:?} is missing");
        assert_eq!(size_of::<F>(), size_of_val(&symbol));
        core::mem::transmute_copy(&symbol)
    }
}

fn baseline(root: &Path) -> PathBuf {
    let library = std::env::temp_dir().join(format!("dlpack_ro_baseline_{}.so", std::process::id()));
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.args(["-O2", "-shared", "-fPIC", "-I"]).arg(root.join("include"));
    cc.arg(root.join("benches/src/baseline.c")).arg("-o").arg(&library);
    assert!(cc.status().expect("a C compiler").success());
    library
}

/// Nanoseconds for each call, median over interleaved rounds, of all contestants.
fn measure(contestants: &mut [(&str, Box<dyn FnMut() + '_>)]) -> Vec<f64> {
    let mut times = vec![Vec::with_capacity(ROUNDS); contestants.len()];
    for round in 0..=ROUNDS {
        for (contestant, times) in contestants.iter_mut().zip(&mut times) {
            let start = Instant::now();
            for _ in 0..TIMES {
                contestant.1();
            }
            if round > 0 {
                times.push(start.elapsed().as_nanos() as f64 / TIMES as f64);
            }
        }
    }
    times
        .iter_mut()
        .map(|times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        })
        .collect()
}

fn table(title: &str, names: &[&str], medians: &[f64]) {
    println!("{title}\n  {:<44} {:>8} {:>8}", "", "ns", "ratio");
    for (name, median) in names.iter().zip(medians) {
        println!("  {name:<44} {median:>8.1} {:>8.2}", median / medians[0]);
    }
}

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("benches is in the repository");
    let ours = root.join("target/release/libdlpack_ro.so");
    let c_export: Export = load(&baseline(root), "baseline_export");
    let our_export: Export = load(&ours, "dlro_tensor_export");
    let our_import: Import = load(&ours, "dlro_tensor_import");
    let our_release: unsafe extern "C" fn(*mut Managed) = load(&ours, "dlro_tensor_release");

    let mut elements = vec![0f32; 2 * 3 * 4 * 5];
    let mut shape = [2i64, 3, 4, 5];
    let mut strides = [60i64, 20, 5, 1];
    let layout = DLTensor {
        data: elements.as_mut_ptr().cast(),
        device: DLDevice::CPU,
        ndim: 4,
        dtype: DLDataType::F32,
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let mut released = 0u64;
    let owner: *mut c_void = (&raw mut released).cast();

    let export = |function: Export| {
        let mut tensor = core::ptr::null_mut();
        // SAFETY: the layout, its arrays and the owner outlive the tensor.
        let status = unsafe { function(black_box(&layout), 0, READ_ONLY, owner, release, &mut tensor) };
        assert_eq!(status, 0);
        tensor
    };
    // SAFETY: each tensor is ended once.
    let end = |tensor: *mut Managed| unsafe { ((*tensor).deleter.expect("a deleter"))(tensor) };
    let park = || {
        let mut initialized = metadata::Dynamic::new(black_box(&shape[..]), black_box(&strides[..]))
            .initialize(Box::new(()))
            .expect("fits");
        initialized.set_data(layout.data).set_dtype(DLDataType::F32).set_device(DLDevice::CPU);
        // SAFETY: the elements outlive the tensor.
        let tensor: versioned::Dlpack = unsafe { initialized.finish() };
        tensor
    };

    let names = ["hand-written C, one malloc, no checks", "dlpack_ro", "dlpark 0.10 (no owner's release)"];
    let medians = measure(&mut [
        (names[0], Box::new(|| end(export(c_export)))),
        (names[1], Box::new(|| end(export(our_export)))),
        (names[2], Box::new(|| drop(black_box(park())))),
    ]);
    table("export + release of a 4-d tensor", &names, &medians);

    let import = |tensor: *mut Managed| {
        let mut imported = core::ptr::null_mut();
        // SAFETY: the tensor is owned and goes over.
        let status = unsafe { our_import(tensor, core::ptr::null(), &mut imported) };
        assert_eq!(status, 0);
        // SAFETY: owned.
        unsafe { our_release(imported) }
    };
    let names = [
        "C's tensor, released unseen",
        "C's tensor, imported by dlpack_ro, released",
        "dlpack_ro's, imported by dlpack_ro, released",
        "dlpark's tensor, validated, released",
    ];
    let medians = measure(&mut [
        (names[0], Box::new(|| end(export(c_export)))),
        (names[1], Box::new(|| import(export(c_export)))),
        (names[2], Box::new(|| import(export(our_export)))),
        (
            names[3],
            Box::new(|| {
                let tensor = park();
                black_box(tensor.validate().expect("valid").shape());
            }),
        ),
    ]);
    table("export + import + release of a 4-d tensor", &names, &medians);
    println!("  a validated import adds {:.1} ns to a release", medians[1] - medians[0]);
    assert_eq!(released as usize, (ROUNDS + 1) * TIMES * 5, "every tensor was released once");
}
