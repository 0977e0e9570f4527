// Stops one operator's call at successive depths, so that a clock outside can tell what each layer costs.
//
// Nothing here reads a clock. A `Call` holds an operator and its arguments; its rungs are Python functions that take the
// same arguments as the real one, do what the generated binding does, and go only so far: parse, release the lock,
// allocate the outputs, set the iterator up, run the kernel, dispatch from a lower key, dispatch from the top, wrap the
// result. All of them are called from Python in the same way, because a layer costs more there than in a tight loop of
// its own, where one turn overlaps with the next. Two ways lead to an operator: typed, through the C++ signature that its kernels were
// compiled with, as torch's own Python functions do, for the signatures listed in `TypedSignatures`; and boxed, through
// a stack of values, as `torch.ops` does, for any schema.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/exp_cpu_dispatch.h>
#include <ATen/ops/maximum_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/neg_cpu_dispatch.h>
#include <ATen/ops/sigmoid_cpu_dispatch.h>
#include <ATen/ops/sin_cpu_dispatch.h>
#include <ATen/ops/sqrt_cpu_dispatch.h>
#include <ATen/ops/sub_cpu_dispatch.h>
#include <ATen/ops/tanh_cpu_dispatch.h>
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/utils/wrap_outputs.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/python_arg_parser.h>
#include <torch/library.h>

#include <alloca.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <vector>

namespace py = pybind11;
using at::Scalar;
using at::Tensor;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;

namespace {

// ---------------------------------------------------------------- typed calls

// Owns one argument for as long as the loop runs, and hands it out as the signature wants it.
template <class A> struct Held {
  A value;
  explicit Held(const IValue& v) : value(v.to<A>()) {}
  A get() { return value; }
};
template <> struct Held<const Tensor&> {
  Tensor value;
  explicit Held(const IValue& v) : value(v.toTensor()) {}
  const Tensor& get() { return value; }
};
template <> struct Held<Tensor&> {
  Tensor value;
  explicit Held(const IValue& v) : value(v.toTensor()) {}
  Tensor& get() { return value; }
};
template <> struct Held<const Scalar&> {
  Scalar value;
  explicit Held(const IValue& v) : value(v.toScalar()) {}
  const Scalar& get() { return value; }
};
template <> struct Held<const std::optional<Tensor>&> {
  std::optional<Tensor> value;
  explicit Held(const IValue& v) : value(v.toOptional<Tensor>()) {}
  const std::optional<Tensor>& get() { return value; }
};
template <> struct Held<at::ScalarType> {
  at::ScalarType value;
  explicit Held(const IValue& v) : value(v.toScalarType()) {}
  at::ScalarType get() { return value; }
};
template <> struct Held<const std::optional<Scalar>&> {
  std::optional<Scalar> value;
  explicit Held(const IValue& v) : value(v.toOptional<Scalar>()) {}
  const std::optional<Scalar>& get() { return value; }
};
template <> struct Held<at::IntArrayRef> {
  std::vector<int64_t> value;
  explicit Held(const IValue& v) : value(v.toIntVector()) {}
  at::IntArrayRef get() { return value; }
};
template <> struct Held<c10::SymInt> {
  c10::SymInt value;
  explicit Held(const IValue& v) : value(v.toSymInt()) {}
  c10::SymInt get() { return value; }
};
template <> struct Held<std::optional<c10::SymInt>> {
  std::optional<c10::SymInt> value;
  explicit Held(const IValue& v) { if (!v.isNone()) value = v.toSymInt(); }
  std::optional<c10::SymInt> get() { return value; }
};
template <> struct Held<c10::SymIntArrayRef> {
  std::vector<c10::SymInt> value;
  explicit Held(const IValue& v) { for (auto i : v.toIntVector()) value.emplace_back(i); }
  c10::SymIntArrayRef get() { return value; }
};
template <> struct Held<at::OptionalIntArrayRef> {
  std::optional<std::vector<int64_t>> value;
  explicit Held(const IValue& v) { if (!v.isNone()) value = v.toIntVector(); }
  at::OptionalIntArrayRef get() { return value ? at::OptionalIntArrayRef(*value) : at::OptionalIntArrayRef(); }
};
template <> struct Held<std::string_view> {
  std::string value;
  explicit Held(const IValue& v) : value(v.toStringRef()) {}
  std::string_view get() { return value; }
};
template <> struct Held<std::optional<std::string_view>> {
  std::optional<std::string> value;
  explicit Held(const IValue& v) { if (!v.isNone()) value = v.toStringRef(); }
  std::optional<std::string_view> get() { return value ? std::optional<std::string_view>(*value) : std::nullopt; }
};
template <> struct Held<const c10::List<std::optional<Tensor>>&> {
  c10::List<std::optional<Tensor>> value;
  explicit Held(const IValue& v) : value(v.to<c10::List<std::optional<Tensor>>>()) {}
  const c10::List<std::optional<Tensor>>& get() { return value; }
};
template <> struct Held<at::TensorList> {
  std::vector<Tensor> value;
  explicit Held(const IValue& v) : value(v.toTensorVector()) {}
  at::TensorList get() { return value; }
};
template <> struct Held<const at::ITensorListRef&> {
  std::vector<Tensor> value;
  at::ITensorListRef ref;
  explicit Held(const IValue& v) : value(v.toTensorVector()), ref(value) {}
  const at::ITensorListRef& get() { return ref; }
};

struct TypedCall {
  virtual ~TypedCall() = default;
  virtual void call() = 0;
  virtual void redispatch(DispatchKeySet keys) = 0;
  virtual PyObject* call_and_wrap() = 0;
};

// Whether a parameter holds symbolic sizes. c10 takes a signature with plain integers for an operator with symbolic ones
// too, and then packs every argument into a box: the schema decides, so that a call goes the way that torch's goes.
template <class A> constexpr bool is_symbolic =
    std::is_same_v<A, c10::SymInt> || std::is_same_v<A, std::optional<c10::SymInt>> ||
    std::is_same_v<A, c10::SymIntArrayRef> || std::is_same_v<A, at::OptionalSymIntArrayRef>;

bool asks_symbolic(const c10::Argument& argument) {
  return argument.real_type()->str().find("SymInt") != std::string::npos;
}

template <class Sig> struct TypedOf;
template <class R, class... A> struct TypedOf<R(A...)> final : TypedCall {
  c10::TypedOperatorHandle<R(A...)> op;
  std::tuple<Held<A>...> held;

  TypedOf(const OperatorHandle& handle, const Stack& args) : TypedOf(handle, args, std::index_sequence_for<A...>()) {}
  template <size_t... I>
  TypedOf(const OperatorHandle& handle, const Stack& args, std::index_sequence<I...>)
      : op((check(handle), handle.typed<R(A...)>())), held(Held<A>(args.at(I))...) {}
  static void check(const OperatorHandle& handle) {
    const auto& arguments = handle.schema().arguments();
    if (arguments.size() != sizeof...(A)) throw std::invalid_argument("another number of arguments");
    constexpr std::array<bool, sizeof...(A)> symbolic = {is_symbolic<A>...};
    for (size_t k = 0; k < symbolic.size(); ++k) {
      if (symbolic[k] != asks_symbolic(arguments[k])) throw std::invalid_argument("sizes of another kind");
    }
  }

  // The lock is released around the call, and taken again before the result is dropped or wrapped, as in torch.
  void call() override { (void)released([&](auto&... h) -> R { return op.call(h.get()...); }); }
  void redispatch(DispatchKeySet keys) override {
    (void)released([&](auto&... h) -> R { return op.redispatch(keys, h.get()...); });
  }
  PyObject* call_and_wrap() override {
    auto made = released([&](auto&... h) -> R { return op.call(h.get()...); });  // by value, as torch's functions do
    // A number becomes Python's, as `Tensor.item` does it; `wrap` would make a tensor of it.
    if constexpr (std::is_same_v<R, Scalar>) return py::cast(made).release().ptr();
    else return torch::autograd::utils::wrap(std::move(made));
  }

 private:
  template <class F> R released(F f) {
    py::gil_scoped_release no_lock;
    return std::apply(f, held);
  }
};

template <class Sig> struct Tag { using type = Sig; };
template <class... Sigs> struct Signatures {};

using T = const Tensor&;
using S = const Scalar&;
using OT = const std::optional<Tensor>&;
using OS = const std::optional<Scalar>&;
using I = int64_t;
using SI = c10::SymInt;
using Ints = at::IntArrayRef;
using SInts = c10::SymIntArrayRef;
using Dt = std::optional<at::ScalarType>;
using Lay = std::optional<at::Layout>;
using Dev = std::optional<at::Device>;
using Pin = std::optional<bool>;
using Mem = std::optional<at::MemoryFormat>;
using Gen = std::optional<at::Generator>;
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Many = std::vector<Tensor>;

using TypedSignatures = Signatures<
    Tensor(T), Tensor(T, T), Tensor(T, T, T), Tensor(T, S), Tensor(T, T, S), Tensor(S, T), Tensor(T, S, S),
    Tensor(T, T, T, S), Tensor(T, T, T, S, S), Tensor(T, OS, OS), Tensor(T, OT, OT), Tensor(T, T, OT),
    Tensor(T, I), Tensor(T, SI), Tensor(T, bool), Tensor(T, Dt), Tensor(T, I, I), Tensor(T, I, SI), Tensor(T, I, bool),
    Tensor(T, I, Dt), Tensor(T, Ints), Tensor(T, SInts), Tensor(T, SInts, bool), Tensor(T, std::string_view),
    Tensor(T, at::OptionalIntArrayRef, bool, Dt), Tensor(T, Ints, bool), Tensor(T, Ints, bool, Dt),
    Tensor(T, I, std::optional<SI>, std::optional<SI>, SI), Tensor(T, T, I), Tensor(T, T, bool), Tensor(T, I, T),
    Tensor(T, I, T, bool), Tensor(T, I, T, T), Tensor(T, I, T, S), Tensor(T, T, SI, bool, bool), Tensor(T, Mem),
    Tensor(T, double, bool), Tensor(at::TensorList), Tensor(at::TensorList, I), Tensor(const at::ITensorListRef&, I),
    Tensor(SInts, Dt, Lay, Dev, Pin), Tensor(SInts, Dt, Lay, Dev, Pin, Mem), Tensor(SInts, S, Dt, Lay, Dev, Pin),
    Tensor(S, Dt, Lay, Dev, Pin), Tensor(T, Dt, Lay, Dev, Pin, Mem), Tensor(T, Dt, Lay, Dev, Pin, bool, Mem),
    Tensor(T, SInts, Dt, Lay, Dev, Pin), Tensor(T, SInts, SInts, std::optional<SI>),
    Tensor&(Tensor&), Tensor&(Tensor&, T), Tensor&(Tensor&, S), Tensor&(Tensor&, T, S), Tensor&(Tensor&, T, T),
    Tensor&(Tensor&, T, T, S), Tensor&(Tensor&, T, bool), Tensor&(Tensor&, OS, OS),
    Two(T), Two(T, I, bool), Two(T, bool), Three(T, SInts, OT, OT, double), Tensor(T, SInts, OT, OT, double, bool),
    Tensor(T, std::optional<I>, bool), Tensor(T, at::OptionalIntArrayRef, OS, bool), Tensor(T, OS, Ints, bool),
    Tensor(T, Ints, Ints, Ints, Ints, bool), Tensor(T, T, OT, SInts, SInts, SInts, bool, SInts, SI),
    Tensor(T, OT, OT, OT, OT, bool, double, double, bool), Two(T, SI, I, bool, bool), Two(T, T, OT, I, SI),
    Tensor(T, T, T, OT, double, bool, std::optional<double>, bool), Tensor(T, at::MemoryFormat),
    Tensor(T, at::ScalarType, bool, bool, Mem), Tensor(T, const c10::List<std::optional<Tensor>>&),
    Tensor(T, at::ScalarType), Tensor(T, T, OT, I, SI), Tensor(T, T, OT, I, SI, double), Tensor(T, T, OT, I),
    Tensor(T, T, OT, OT, I), Tensor(T, T, I, I, bool), Tensor(T, double, I, at::ScalarType), Tensor(T, Gen),
    Tensor(T, OS, at::OptionalIntArrayRef, bool, Dt), Tensor(T, S, at::OptionalIntArrayRef, bool, Dt),
    Tensor(T, std::optional<SI>, I, std::optional<std::string_view>),
    Tensor(SI, Dt, Lay, Dev, Pin), Tensor(SI, SInts, Dt, Lay, Dev, Pin), Tensor(SI, SI, SInts, Dt, Lay, Dev, Pin),
    Tensor(S, S, Dt, Lay, Dev, Pin), Tensor(S, S, S, Dt, Lay, Dev, Pin), Tensor(S, S, I, Dt, Lay, Dev, Pin),
    Tensor(T, S, Dt, Lay, Dev, Pin, Mem), Tensor(T, SInts, S, Dt, Lay, Dev, Pin),
    Tensor&(T, Tensor&), Tensor&(T, T, Tensor&), Tensor&(T, T, S, Tensor&), Tensor&(T, S, Tensor&),
    Three(T, bool, bool, bool), Many(at::TensorList), Many(at::TensorList, S), Many(at::TensorList, at::TensorList),
    Many(at::TensorList, at::TensorList, S), Many(T, SI, I), Many(T, I), Many(T, I, I), bool(T), bool(T, T), I(T), I(T, T, T, T, T, T, T, T), SI(T), Scalar(T)>;

template <class... Sigs>
std::unique_ptr<TypedCall> find_typed(Signatures<Sigs...>, const OperatorHandle& op, const Stack& args) {
  std::unique_ptr<TypedCall> found;
  // A wrong signature is an error of c10's own check; the next one is tried.
  auto attempt = [&](auto tag) {
    using Sig = typename decltype(tag)::type;
    if (found) return;
    try { found = std::make_unique<TypedOf<Sig>>(op, args); } catch (const std::exception&) {}
  };
  (attempt(Tag<Sigs>{}), ...);
  return found;
}

// ---------------------------------------------------------------- deeper rows of named operators

// The kernel of the CPU key called past the dispatcher, with its arguments taken off the stack beforehand.
using Kernel = std::function<void()>;
using MakeKernel = Kernel (*)(const Stack&);

#define UNARY(name)                                                                    \
  {"aten::" #name, [](const Stack& s) -> Kernel {                                      \
     return [a = s[0].toTensor()] { (void)at::cpu::name(a); }; }}
#define BINARY(name, full)                                                             \
  {"aten::" full, [](const Stack& s) -> Kernel {                                       \
     return [a = s[0].toTensor(), b = s[1].toTensor()] { (void)at::cpu::name(a, b); }; }}
#define SCALED(name, full)                                                             \
  {"aten::" full, [](const Stack& s) -> Kernel {                                       \
     return [a = s[0].toTensor(), b = s[1].toTensor(), c = s[2].toScalar()] {          \
       (void)at::cpu::name(a, b, c); }; }}

MakeKernel find_kernel(const std::string& name) {
  static const std::unordered_map<std::string, MakeKernel> rows = {
      SCALED(add, "add.Tensor"), SCALED(sub, "sub.Tensor"), BINARY(mul, "mul.Tensor"), BINARY(div, "div.Tensor"),
      BINARY(maximum, "maximum"), BINARY(mm, "mm"), UNARY(exp), UNARY(neg), UNARY(sigmoid), UNARY(sin), UNARY(sqrt),
      UNARY(tanh)};
  const auto found = rows.find(name);
  return found == rows.end() ? nullptr : found->second;
}
#undef UNARY
#undef BINARY
#undef SCALED

Tensor allocate(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
  // As the generated wrappers around structured kernels do: no strides are the usual ones.
  if (!options.device().is_cpu()) {
    return strides.empty() ? at::empty(sizes, options) : at::empty_strided(sizes, strides, options);
  }
  return strides.empty() ? at::detail::empty_cpu(sizes, options)
                         : at::detail::empty_strided_cpu(sizes, strides, options);
}

// The iterator of a structured kernel whose output does not exist yet: it asks for the output once it knows the shape,
// and makes no check of what an output that is there might overlap with. The arguments of the hook differ between
// versions of torch, and are taken from it.
template <class Hook> struct MakingIteratorOf;
template <class... Rest>
struct MakingIteratorOf<void (at::impl::MetaBase::*)(int64_t, at::IntArrayRef, at::IntArrayRef, at::TensorOptions, Rest...)>
    final : at::TensorIteratorBase {
  Tensor made;
  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides, at::TensorOptions options,
                              Rest... rest) override {
    made = allocate(sizes, strides, options);
    at::TensorIteratorBase::set_output_raw_strided(index, sizes, strides, options, rest...);
  }
  const Tensor& maybe_get_output(int64_t) override { return made; }
};
using MakingIterator = MakingIteratorOf<decltype(&at::impl::MetaBase::set_output_raw_strided)>;

enum class Iterates { unary, unary_float, binary, binary_float, comparison, other };

// Which of torch's iterators gives this output for these inputs.
Iterates iterator_of(const Tensor& out, const std::vector<Tensor>& in) {
  bool integral = true;
  for (const auto& t : in) integral = integral && c10::isIntegralType(t.scalar_type(), true);
  const bool widens = integral && at::isFloatingType(out.scalar_type());
  if (in.size() == 1 && widens) return Iterates::unary_float;
  if (in.size() == 1 && out.scalar_type() == in[0].scalar_type()) return Iterates::unary;
  if (in.size() == 2 && widens) return Iterates::binary_float;
  if (in.size() == 2 && out.scalar_type() == at::kBool && in[0].scalar_type() != at::kBool) return Iterates::comparison;
  if (in.size() == 2) return Iterates::binary;
  return Iterates::other;
}

// The output of the iterator that a pointwise kernel builds, made on the way, and dropped.
at::ScalarType build_iterator(Iterates kind, const std::vector<Tensor>& in) {
  MakingIterator made;
  const Tensor& out = made.maybe_get_output(0);
  switch (kind) {
    case Iterates::unary: made.build_borrowing_unary_op(out, in[0]); break;
    case Iterates::unary_float: made.build_borrowing_unary_float_op(out, in[0]); break;
    case Iterates::binary: made.build_borrowing_binary_op(out, in[0], in[1]); break;
    case Iterates::binary_float: made.build_borrowing_binary_float_op(out, in[0], in[1]); break;
    case Iterates::comparison: made.build_borrowing_comparison_op(out, in[0], in[1]); break;
    case Iterates::other: break;
  }
  return out.scalar_type();
}

// Of three and more operands: their kernels make the output first. Operands of several dtypes (a mask and two values)
// are taken as they are, not promoted.
void build_iterator_on(const Tensor& out, const std::vector<Tensor>& in) {
  bool same = true;
  for (const auto& t : in) same = same && t.scalar_type() == out.scalar_type();
  auto config = at::TensorIteratorConfig();
  config.add_borrowed_output(out).check_all_same_dtype(same);
  for (const auto& t : in) config.add_borrowed_const_input(t);
  config.build();
}

// ---------------------------------------------------------------- one prepared call

struct Blank {  // what an output needs to be allocated again
  std::vector<int64_t> sizes, strides;
  at::TensorOptions options;
  bool contiguous;
};

Tensor allocate(const Blank& b) {
  return allocate(b.sizes, b.contiguous ? at::IntArrayRef() : at::IntArrayRef(b.strides), b.options);
}

// Nothing that stands behind begins before all that stands before it is done.
inline void stand_still() {
#if defined(__x86_64__)
  asm volatile("lfence" ::: "memory");
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// A chain of multiplications in one register: each waits for the one before, and none goes through memory, whose
// forwarding is faster or slower by where the code around it has put the stack.
void spin(uint64_t turns) {
  if (turns == 0) return;
  stand_still();
  uint64_t chain = turns;
  for (; turns > 0; --turns) {
    chain = chain * 6364136223846793005u + 1u;
    asm volatile("" : "+r"(chain));
  }
  stand_still();
}

enum class Depth { parse, release, allocate, iterator, kernel, redispatch, call, wrap };

class Call : public std::enable_shared_from_this<Call> {
 public:
  Call(const std::string& name, const std::string& overload, const py::tuple& args, const py::dict& kwargs)
      : op_(c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str())),
        full_(overload.empty() ? name : name + "." + overload), symbol_(c10::Symbol::fromQualString(name)),
        stack_(make_stack(args, kwargs)) {
    typed_ = find_typed(TypedSignatures{}, op_, stack_);
    if (const auto make = find_kernel(full_)) kernel_ = make(stack_);
    for (const auto& known : torch::jit::getAllOperatorsFor(symbol_)) {
      if (known->schema().overload_name() == overload) scripted_ = {known};
    }
  }

  bool is_typed() const { return typed_ != nullptr; }
  bool has_kernel() const { return static_cast<bool>(kernel_); }

  // The outputs of one call that own new memory.
  void set_outputs(const std::vector<Tensor>& fresh) {
    blanks_.clear();
    for (const auto& t : fresh) {
      const auto options = at::TensorOptions().dtype(t.scalar_type()).device(t.device());
      blanks_.push_back({t.sizes().vec(), t.strides().vec(), options, t.is_contiguous()});
    }
  }
  void set_iterator(const Tensor& out, std::vector<Tensor> in) {
    inputs_ = std::move(in);
    iterates_ = iterator_of(out, inputs_);
    if (iterates_ == Iterates::other) build_iterator_on(out, inputs_);
    else TORCH_CHECK(build_iterator(iterates_, inputs_) == out.scalar_type(), "another kind of iterator");
  }
  void set_parser(const std::vector<std::string>& signatures, const std::optional<Tensor>& self) {
    parser_ = std::make_unique<torch::PythonArgParser>(signatures, false);
    self_ = self ? py::reinterpret_steal<py::object>(THPVariable_Wrap(*self)) : py::object();
  }

  // A kernel takes some percent more or less by how far the stack beneath it lies from what it writes (the low twelve
  // bits of either decide which loads wait for which stores), and the layers above it differ in how much stack they
  // take: as much as a small stage. Scattered, each call begins at another place of a page, and both sides of a pair
  // get the same average.
  void set_scattered(bool on) { scattered_ = on; }

  // What one call from Python does when it stops at `depth`.
  PyObject* step(Depth depth, DispatchKeySet keys, bool below, PyObject* args, PyObject* kwargs) {
    if (!scattered_) return go(depth, keys, below, args, kwargs);
    volatile char* room = static_cast<char*>(alloca(offset() + 1));
    room[0] = 0;
    PyObject* result = go(depth, keys, below, args, kwargs);
    room[0] = 1;  // still held
    return result;
  }
  PyObject* go(Depth depth, DispatchKeySet keys, bool below, PyObject* args, PyObject* kwargs) {
    parse(args, kwargs);
    switch (depth) {
      case Depth::parse: break;
      case Depth::release: { py::gil_scoped_release no_lock; break; }
      case Depth::allocate: allocate_all(); break;
      case Depth::iterator: {  // below autograd, where the real one casts operands of other dtypes
        py::gil_scoped_release no_lock;
        at::AutoDispatchBelowADInplaceOrView guard;
        if (iterates_ == Iterates::other) build_iterator_on(allocate(blanks_.front()), inputs_);
        else build_iterator(iterates_, inputs_);
        break;
      }
      case Depth::kernel: {
        py::gil_scoped_release no_lock;
        at::AutoDispatchBelowADInplaceOrView guard;
        kernel_();
        break;
      }
      case Depth::redispatch: {
        std::optional<at::AutoDispatchBelowADInplaceOrView> guard;
        if (below) guard.emplace();
        if (typed_) typed_->redispatch(keys);
        else { Stack s(stack_); py::gil_scoped_release no_lock; op_.redispatchBoxed(keys, &s); }
        break;
      }
      case Depth::call: {
        std::optional<at::AutoDispatchBelowADInplaceOrView> guard;
        if (below) guard.emplace();
        if (typed_) typed_->call();
        else { Stack s(stack_); py::gil_scoped_release no_lock; op_.callBoxed(&s); }
        break;
      }
      case Depth::wrap: {
        std::optional<at::AutoDispatchBelowADInplaceOrView> guard;
        if (below) guard.emplace();
        if (typed_) return typed_->call_and_wrap();
        Stack s(stack_);
        { py::gil_scoped_release no_lock; op_.callBoxed(&s); }
        return torch::jit::createPyObjectForStack(std::move(s)).release().ptr();
      }
    }
    Py_RETURN_NONE;
  }

  // The same as `torch.ops` does it: each argument is asked whether it overrides functions, then the values go onto a
  // stack, and the call takes them from there.
  py::object boxed_step(Depth depth, DispatchKeySet keys, bool below, const py::args& args, const py::kwargs& kwargs) {
    if (!scattered_) return boxed_go(depth, keys, below, args, kwargs);
    volatile char* room = static_cast<char*>(alloca(offset() + 1));
    room[0] = 0;
    py::object result = boxed_go(depth, keys, below, args, kwargs);
    room[0] = 1;
    return result;
  }
  py::object boxed_go(Depth depth, DispatchKeySet keys, bool below, const py::args& args, const py::kwargs& kwargs) {
    const std::string space = symbol_.ns().toUnqualString(), base = symbol_.toUnqualString();
    const std::string overload = op_.schema().overload_name();
    if (depth == Depth::wrap) {  // the function that torch.ops itself calls
      return torch::jit::_get_operation_for_overload_or_packet(scripted_, symbol_, args, kwargs, true);
    }
    (void)torch::jit::_maybe_handle_torch_function(space, base, overload, true, args, kwargs);
    Stack s = torch::jit::createStackForSchema(op_.schema(), py::args(args), py::kwargs(kwargs), std::nullopt);
    switch (depth) {
      case Depth::parse: return py::none();
      case Depth::release: { py::gil_scoped_release no_lock; break; }
      case Depth::allocate: allocate_all(); break;
      case Depth::redispatch: {
        py::gil_scoped_release no_lock;
        std::optional<at::AutoDispatchBelowADInplaceOrView> guard;
        if (below) guard.emplace();
        op_.redispatchBoxed(keys, &s);
        break;
      }
      case Depth::call: { py::gil_scoped_release no_lock; op_.callBoxed(&s); break; }
      default: throw std::invalid_argument("this depth is reached through the typed call alone");
    }
    return py::none();
  }

 private:
  Stack make_stack(const py::tuple& args, const py::dict& kwargs) {
    return torch::jit::createStackForSchema(op_.schema(), py::args(args), py::kwargs(kwargs), std::nullopt);
  }
  // Multiples of the stack's alignment within a page. Steps of the golden ratio: any run of calls is spread evenly, at
  // whatever call it begins.
  size_t offset() { return 16 * ((calls_++ * 2654435769u) >> 24); }
  void allocate_all() {
    py::gil_scoped_release no_lock;
    if (blanks_.size() == 1) {  // a vector around it would be an allocation of its own
      Tensor made = allocate(blanks_.front());
      return;
    }
    std::vector<Tensor> made;
    made.reserve(blanks_.size());
    for (const auto& b : blanks_) made.push_back(allocate(b));
  }
  // Parses as the generated functions do, and reads every value that was given out of the result.
  void parse(PyObject* args, PyObject* kwargs) {
    if (!parser_) return;
    torch::ParsedArgs<24> parsed;
    auto r = parser_->parse(self_.ptr(), args, kwargs, parsed);
    const auto& params = r.signature.params;
    for (int i = 0; i < static_cast<int>(params.size()); ++i) {
      switch (params[i].type_) {
        case torch::ParameterType::TENSOR: read_ = r.isNone(i) ? 0 : r.tensor(i).defined(); break;
        case torch::ParameterType::SCALAR: if (!r.isNone(i)) read_ = r.scalar(i).isIntegral(true); break;
        case torch::ParameterType::INT64: if (!r.isNone(i)) read_ = r.toInt64(i); break;
        case torch::ParameterType::DOUBLE: if (!r.isNone(i)) read_ = r.toDouble(i) > 0; break;
        case torch::ParameterType::BOOL: if (!r.isNone(i)) read_ = r.toBool(i); break;
        case torch::ParameterType::INT_LIST: if (!r.isNone(i)) read_ = r.intlist(i).size(); break;
        case torch::ParameterType::SYM_INT: if (!r.isNone(i)) read_ = r.toSymInt(i).is_heap_allocated(); break;
        case torch::ParameterType::SYM_INT_LIST: if (!r.isNone(i)) read_ = r.symintlist(i).size(); break;
        case torch::ParameterType::SCALARTYPE: if (!r.isNone(i)) read_ = static_cast<int64_t>(r.scalartype(i)); break;
        case torch::ParameterType::TENSOR_LIST: if (!r.isNone(i)) read_ = r.tensorlist(i).size(); break;
        default: break;
      }
    }
  }

  OperatorHandle op_;
  std::string full_;
  c10::Symbol symbol_;
  Stack stack_;
  std::unique_ptr<TypedCall> typed_;
  std::vector<std::shared_ptr<torch::jit::Operator>> scripted_;  // this overload alone, as TorchScript knows it
  Kernel kernel_;
  Iterates iterates_ = Iterates::other;
  std::vector<Blank> blanks_;
  std::vector<Tensor> inputs_;
  std::unique_ptr<torch::PythonArgParser> parser_;
  py::object self_;
  bool scattered_ = false;
  uint32_t calls_ = 0;
  volatile int64_t read_ = 0;
};

// ---------------------------------------------------------------- rungs

struct Rung {
  std::shared_ptr<Call> call;
  Depth depth;
  DispatchKeySet keys;
  bool below;
};

Depth depth_of(const std::string& name) {
  static const std::unordered_map<std::string, Depth> names = {
      {"parse", Depth::parse}, {"release", Depth::release}, {"allocate", Depth::allocate},
      {"iterator", Depth::iterator}, {"kernel", Depth::kernel},
      {"redispatch", Depth::redispatch}, {"call", Depth::call}, {"wrap", Depth::wrap}};
  return names.at(name);
}

PyObject* run_rung(PyObject* capsule, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  auto& rung = *static_cast<Rung*>(PyCapsule_GetPointer(capsule, nullptr));
  return rung.call->step(rung.depth, rung.keys, rung.below, args, kwargs);
  END_HANDLE_TH_ERRORS
}
PyMethodDef rung_def = {"rung", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&run_rung)),
                        METH_VARARGS | METH_KEYWORDS, "Goes as far as one depth."};

py::object make_rung(std::shared_ptr<Call> call, const std::string& depth, uint64_t keys, bool below) {
  auto* rung = new Rung{std::move(call), depth_of(depth), DispatchKeySet(DispatchKeySet::RAW, keys), below};
  PyObject* capsule = PyCapsule_New(rung, nullptr, [](PyObject* c) { delete static_cast<Rung*>(PyCapsule_GetPointer(c, nullptr)); });
  auto made = py::reinterpret_steal<py::object>(PyCFunction_New(&rung_def, capsule));
  Py_DECREF(capsule);
  return made;
}

py::object make_boxed_rung(std::shared_ptr<Call> call, const std::string& depth, uint64_t keys, bool below) {
  const Rung rung{std::move(call), depth_of(depth), DispatchKeySet(DispatchKeySet::RAW, keys), below};
  return py::cpp_function([rung](const py::args& args, const py::kwargs& kwargs) {
    return rung.call->boxed_step(rung.depth, rung.keys, rung.below, args, kwargs);
  });
}

// ---------------------------------------------------------------- what was called

struct Seen : at::ObserverContext {};
std::vector<std::pair<std::string, int>>* recording = nullptr;
int recording_depth = 0;

std::vector<std::pair<std::string, int>> record(const py::object& callable) {
  std::vector<std::pair<std::string, int>> names;
  recording = &names;
  recording_depth = 0;
  auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& fn) -> std::unique_ptr<at::ObserverContext> {
            auto name = fn.operator_name();
            if (recording && name) recording->emplace_back(
                name->overload_name.empty() ? name->name : name->name + "." + name->overload_name, recording_depth);
            ++recording_depth;
            return std::make_unique<Seen>();
          },
          [](const at::RecordFunction&, at::ObserverContext*) { --recording_depth; })
          .scopes({at::RecordScope::FUNCTION}));
  try {
    callable();
  } catch (...) {
    at::removeCallback(handle);
    recording = nullptr;
    throw;
  }
  at::removeCallback(handle);
  recording = nullptr;
  return names;
}

// ---------------------------------------------------------------- planted costs

// Puts itself before the kernel that an operator has at a key, and spends `turns` before passing on.
struct PlantedKernel final : c10::OperatorKernel {
  PlantedKernel(c10::SafeKernelFunction kernel, std::shared_ptr<uint64_t> turns)
      : kernel_(std::move(kernel)), turns_(std::move(turns)) {}
  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    spin(*turns_);
    kernel_.callBoxed(op, keys, stack);
  }
  c10::SafeKernelFunction kernel_;
  std::shared_ptr<uint64_t> turns_;
};

class Plant {
 public:
  Plant(const std::string& name, const std::string& overload, const std::string& key)
      : turns_(std::make_shared<uint64_t>(0)) {
    auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
    const auto at = c10::parseDispatchKey(key);
    auto kernel = op.getComputedKernelForDispatchKey(at);
    handle_.emplace(c10::Dispatcher::singleton().registerImpl(
        op.operator_name(), at,
        c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<PlantedKernel>(std::move(kernel), turns_)),
        std::nullopt, nullptr, "referee: a planted cost"));
  }
  void set(uint64_t turns) { *turns_ = turns; }
  void remove() { handle_.reset(); }

 private:
  std::shared_ptr<uint64_t> turns_;
  std::optional<c10::RegistrationHandleRAII> handle_;
};

class PlantedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { spin(turns); return below->allocate(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return below->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { below->copy_data(to, from, bytes); }
  c10::Allocator* below = nullptr;
  uint64_t turns = 0;
};
PlantedAllocator planted_allocator;

void plant_allocator(uint64_t turns) {
  if (planted_allocator.below == nullptr) {
    planted_allocator.below = c10::GetCPUAllocator();
    c10::SetCPUAllocator(&planted_allocator, 1);
  }
  planted_allocator.turns = turns;
}

// ---------------------------------------------------------------- what arguments and references cost

// Operators that differ only in how many tensors they take, to see what each adds to finding the keys.
int64_t take_one(T) { return 0; }
int64_t take_eight(T, T, T, T, T, T, T, T) { return 0; }

// Copies and drops a reference `n` times in each of several threads: what saving a tensor does to its count.
void copy_references(const std::vector<Tensor>& tensors, int64_t n) {
  py::gil_scoped_release no_lock;
  auto work = [n](const Tensor& t) {
    for (int64_t k = n; k > 0; --k) {
      Tensor copy = t;
      asm volatile("" : : "r"(copy.unsafeGetTensorImpl()) : "memory");
    }
  };
  std::vector<std::thread> others;
  for (size_t k = 1; k < tensors.size(); ++k) others.emplace_back(work, std::cref(tensors[k]));
  work(tensors[0]);
  for (auto& other : others) other.join();
}

// ---------------------------------------------------------------- calls that do nothing

PyObject* nothing(PyObject*, PyObject*, PyObject*) { Py_RETURN_NONE; }
PyMethodDef nothing_def = {"nothing", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&nothing)),
                           METH_VARARGS | METH_KEYWORDS, "Takes any arguments and does nothing."};

}  // namespace

TORCH_LIBRARY(referee_probe, library) {
  library.def("take_one(Tensor a) -> int");
  library.def("take_eight(Tensor a, Tensor b, Tensor c, Tensor d, Tensor e, Tensor f, Tensor g, Tensor h) -> int");
}
TORCH_LIBRARY_IMPL(referee_probe, CompositeExplicitAutograd, library) {
  library.impl("take_one", take_one);
  library.impl("take_eight", take_eight);
}
TORCH_LIBRARY_IMPL(referee_probe, Autograd, library) {
  library.impl("take_one", torch::CppFunction::makeFallthrough());
  library.impl("take_eight", torch::CppFunction::makeFallthrough());
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::class_<Call, std::shared_ptr<Call>>(m, "Call")
      .def(py::init<const std::string&, const std::string&, const py::tuple&, const py::dict&>())
      .def("is_typed", &Call::is_typed)
      .def("has_kernel", &Call::has_kernel)
      .def("set_outputs", &Call::set_outputs)
      .def("set_scattered", &Call::set_scattered)
      .def("set_iterator", &Call::set_iterator)
      .def("set_parser", &Call::set_parser);
  py::class_<Plant>(m, "Plant")
      .def(py::init<const std::string&, const std::string&, const std::string&>())
      .def("set", &Plant::set)
      .def("remove", &Plant::remove);
  m.def("rung", &make_rung);
  m.def("boxed_rung", &make_boxed_rung);
  m.def("record", &record);
  m.def("plant_allocator", &plant_allocator);
  m.def("spin", &spin);
  m.def("copy_references", &copy_references);
  m.def("nothing_boxed", [](const py::args&, const py::kwargs&) { return py::none(); });
  m.attr("nothing") = py::reinterpret_steal<py::object>(PyCFunction_New(&nothing_def, nullptr));
}
