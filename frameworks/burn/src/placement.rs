//! Which part of a plan a kernel comes from.
//!
//! A plan runs its parts in order: a fused block launches one kernel, or those of its fallback; an operation that is not fused
//! launches what it needs. Burn reports no part's begin. So the parts of a plan are an automaton that reads the names of the
//! kernels: its states are the parts that a launch can come from. One state is certain; several are all kept.

use std::cell::RefCell;
use std::fmt::Write;

use burn_ir::{
    BaseOperationIr, FloatOperationIr, ModuleOperationIr, NumericOperationIr, OperationIr,
};
use tracing::field::{Field, Visit};
use tracing::span::Attributes;

/// A kernel, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    FusedElementwise,
    FusedMatmul,
    FusedReduce,
    FusedBroadcast,
    Copy,
    Binary,
    Unary,
    Fill,
    Random,
    Matmul,
    Reduce,
    Convolution,
    Pool,
    Other,
}

impl Kernel {
    /// The kernel of cubecl's span of a launch.
    pub(crate) fn of_span(attributes: &Attributes<'_>) -> Self {
        thread_local!(static NAME: RefCell<String> = const { RefCell::new(String::new()) });
        struct Name<'a>(&'a mut String);
        impl Visit for Name<'_> {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                if field.name() == "kernel.name" {
                    let _ = write!(self.0, "{value:?}");
                }
            }
        }
        NAME.with_borrow_mut(|name| {
            name.clear();
            attributes.record(&mut Name(name));
            Self::from_type_name(name)
        })
    }

    /// The kernel of a type's path, with its parameters.
    fn from_type_name(name: &str) -> Self {
        let path = name.split('<').next().unwrap_or_default();
        let is = |part: &str| path.contains(part);
        if name.contains("FusedMatmul") {
            Self::FusedMatmul
        } else if is("burn_cubecl_fusion::optim::elemwise") {
            Self::FusedElementwise
        } else if is("burn_cubecl_fusion::optim::reduce_broadcasted") {
            Self::FusedBroadcast
        } else if name.contains("burn_cubecl_fusion::optim::reduce") {
            Self::FusedReduce
        } else if name.contains("copy::Copy") || is("contiguous") {
            Self::Copy
        } else if is("::binary") {
            Self::Binary
        } else if is("::unary") {
            Self::Unary
        } else if is("full_kernel") {
            Self::Fill
        } else if is("cubek_random") {
            Self::Random
        } else if is("conv") || is("im2col") || is("col2im") {
            Self::Convolution
        } else if is("cubek_matmul") {
            Self::Matmul
        } else if is("cubek_reduce") {
            Self::Reduce
        } else if is("pool") {
            Self::Pool
        } else {
            Self::Other
        }
    }

    fn is_fused(self) -> bool {
        matches!(
            self,
            Self::FusedElementwise | Self::FusedMatmul | Self::FusedReduce | Self::FusedBroadcast
        )
    }
}

/// A part of a plan: a fused block, or an operation that is not fused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Elementwise,
    FusedMatmul,
    FusedReduce,
    FusedBroadcast,
    /// One launch of this kernel.
    One(Kernel),
    /// Launches of this kernel, at least one.
    Several(Kernel),
    /// A convolution, with whatever it needs.
    Convolution,
    /// No launch, or a copy.
    View,
    /// Any launches that are not fused, or none: operations whose kernels are not known.
    Any,
}

/// Operations of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    /// The one that a fallback launches apart.
    Main,
    /// Those before it, or those after it.
    Beside,
}

/// How far a unit has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    /// Launched what comes before its main kernel.
    Begun,
    /// May launch more.
    Open,
    Done,
}

impl Unit {
    /// A block that burn fused, by the name of its optimization.
    pub(crate) fn fused(name: &str) -> Self {
        match name {
            "ElementWise" => Self::Elementwise,
            "Matmul" => Self::FusedMatmul,
            "Reduce" => Self::FusedReduce,
            _ => Self::FusedBroadcast,
        }
    }

    /// An operation that is not fused.
    pub(crate) fn from_operation(operation: &OperationIr) -> Self {
        use {
            BaseOperationIr as Base, FloatOperationIr as Float, ModuleOperationIr as Module,
            NumericOperationIr as Numeric,
        };
        match operation {
            OperationIr::BaseFloat(Base::Ones(_) | Base::Zeros(_))
            | OperationIr::BaseInt(Base::Ones(_) | Base::Zeros(_))
            | OperationIr::NumericFloat(_, Numeric::Full(_))
            | OperationIr::NumericInt(_, Numeric::Full(_)) => Self::One(Kernel::Fill),
            OperationIr::Float(_, Float::Random(_)) => Self::One(Kernel::Random),
            OperationIr::Float(_, Float::Matmul(_)) => Self::Several(Kernel::Matmul),
            OperationIr::Float(
                _,
                Float::Exp(_)
                | Float::Log(_)
                | Float::Sqrt(_)
                | Float::Cos(_)
                | Float::Sin(_)
                | Float::Tanh(_)
                | Float::Erf(_)
                | Float::Recip(_),
            ) => Self::One(Kernel::Unary),
            OperationIr::NumericFloat(
                _,
                Numeric::Add(_)
                | Numeric::Sub(_)
                | Numeric::Mul(_)
                | Numeric::Div(_)
                | Numeric::AddScalar(_)
                | Numeric::SubScalar(_)
                | Numeric::MulScalar(_)
                | Numeric::DivScalar(_),
            ) => Self::One(Kernel::Binary),
            OperationIr::NumericFloat(
                _,
                Numeric::Mean(_)
                | Numeric::MeanDim(_)
                | Numeric::Sum(_)
                | Numeric::SumDim(_)
                | Numeric::Prod(_)
                | Numeric::ProdDim(_)
                | Numeric::ArgMax(_)
                | Numeric::ArgMin(_)
                | Numeric::MaxDim(_)
                | Numeric::MinDim(_),
            ) => Self::Several(Kernel::Reduce),
            OperationIr::Module(
                Module::Conv1d(_)
                | Module::Conv2d(_)
                | Module::Conv3d(_)
                | Module::Conv2dXBackward(_)
                | Module::Conv2dWeightBackward(_),
            ) => Self::Convolution,
            OperationIr::Module(
                Module::MaxPool2d(_)
                | Module::MaxPool2dWithIndices(_)
                | Module::AvgPool2d(_)
                | Module::AdaptiveAvgPool2d(_)
                | Module::AvgPool2dBackward(_)
                | Module::AdaptiveAvgPool2dBackward(_),
            ) => Self::Several(Kernel::Pool),
            OperationIr::Init(_)
            | OperationIr::BaseFloat(
                Base::Reshape(_) | Base::SwapDims(_) | Base::Permute(_) | Base::Expand(_),
            )
            | OperationIr::BaseInt(
                Base::Reshape(_) | Base::SwapDims(_) | Base::Permute(_) | Base::Expand(_),
            ) => Self::View,
            _ => Self::Any,
        }
    }

    /// Whether the fallback of this block launches the operation apart from the rest.
    pub(crate) fn is_main(self, operation: &OperationIr) -> bool {
        match self {
            Self::FusedMatmul => Self::from_operation(operation) == Self::Several(Kernel::Matmul),
            Self::FusedReduce => Self::from_operation(operation) == Self::Several(Kernel::Reduce),
            _ => false,
        }
    }

    /// Which operations of the unit a kernel of it has.
    pub(crate) fn part(self, kernel: Kernel) -> Part {
        match (self, kernel) {
            (
                Self::FusedMatmul | Self::FusedReduce,
                Kernel::Matmul | Kernel::Reduce | Kernel::Copy,
            ) => Part::Main,
            (Self::FusedMatmul | Self::FusedReduce, Kernel::FusedElementwise) => Part::Beside,
            _ => Part::All,
        }
    }

    /// The phase after a launch of this kernel, if it can come from the unit in this phase.
    fn after(self, phase: Phase, kernel: Kernel) -> Option<Phase> {
        use {Kernel as K, Phase as P};
        let next = match (self, phase, kernel) {
            (_, P::Done, _) => return None,
            (Self::Elementwise, P::New, K::FusedElementwise) => P::Done,
            // Else its fallback: the operation, then what is fused after it.
            (Self::FusedMatmul, P::New | P::Begun, K::FusedMatmul) => P::Done,
            (Self::FusedMatmul, P::New | P::Begun, K::Copy) => P::Begun,
            (Self::FusedMatmul, _, K::Matmul) | (Self::FusedMatmul, P::Open, K::Copy) => P::Open,
            (Self::FusedMatmul, P::Open, K::FusedElementwise) => P::Done,
            (Self::FusedReduce, P::New, K::FusedReduce) => P::Done,
            (Self::FusedReduce, P::New, K::FusedElementwise | K::Copy) => P::Begun,
            (Self::FusedReduce, P::Begun, K::Copy) => P::Begun,
            (Self::FusedReduce, _, K::Reduce) | (Self::FusedReduce, P::Open, K::Copy) => P::Open,
            (Self::FusedReduce, P::Open, K::FusedElementwise) => P::Done,
            (Self::FusedBroadcast, P::New, K::FusedBroadcast) => P::Done,
            (
                Self::FusedBroadcast,
                _,
                K::FusedElementwise | K::FusedReduce | K::Reduce | K::Copy,
            ) => P::Open,
            (Self::One(_) | Self::Several(_), P::New | P::Begun, K::Copy) => P::Begun,
            (Self::One(main), P::New | P::Begun, kernel) if main == kernel => P::Done,
            (Self::Several(main), _, kernel) if main == kernel => P::Open,
            (Self::Several(_), P::Open, K::Copy) => P::Open,
            (Self::Convolution, _, K::Convolution | K::Matmul | K::Other) => P::Open,
            (Self::Convolution, P::New | P::Begun, K::Copy) => P::Begun,
            (Self::Convolution, P::Open, K::Copy | K::Binary) => P::Open,
            (Self::View, _, K::Copy) => P::Open,
            (Self::Any, _, kernel) if !kernel.is_fused() => P::Open,
            _ => return None,
        };
        Some(next)
    }

    /// Whether the next unit may launch now.
    fn may_end(self, phase: Phase) -> bool {
        match phase {
            Phase::New => matches!(self, Self::View | Self::Any),
            Phase::Begun => false,
            // The fallback of a product always has a second kernel.
            Phase::Open => self != Self::FusedMatmul,
            Phase::Done => true,
        }
    }
}

/// Where a launch may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) unit: usize,
    /// A fallback's main operation has been launched, this kernel or an earlier one.
    pub(crate) is_after_main: bool,
}

/// Where a plan's launches have come to.
pub(crate) struct Placement {
    units: Vec<Unit>,
    /// The units that may be running, in order.
    states: Vec<(usize, Phase)>,
}

impl Placement {
    pub(crate) fn new(units: Vec<Unit>) -> Self {
        Self { units, states: vec![(0, Phase::New)] }
    }

    pub(crate) fn units(&self) -> &[Unit] {
        &self.units
    }

    /// Where a launch of this kernel can come from, and from now on nowhere else; `None` if from nowhere.
    pub(crate) fn launch(&mut self, kernel: Kernel) -> Option<Vec<Placed>> {
        let states = self.after(kernel);
        let placed = Self::placed(&states)?;
        self.states = states;
        Some(placed)
    }

    /// Where a launch of this kernel could come from; `None` if from nowhere.
    pub(crate) fn possible(&self, kernel: Kernel) -> Option<Vec<Placed>> {
        Self::placed(&self.after(kernel))
    }

    fn placed(states: &[(usize, Phase)]) -> Option<Vec<Placed>> {
        let place = |(unit, phase): &(usize, Phase)| Placed {
            unit: *unit,
            is_after_main: matches!(phase, Phase::Open | Phase::Done),
        };
        (!states.is_empty()).then(|| states.iter().map(place).collect())
    }

    fn after(&self, kernel: Kernel) -> Vec<(usize, Phase)> {
        let mut states: Vec<(usize, Phase)> = Vec::new();
        for &(unit, phase) in &self.states {
            let (mut unit, mut phase) = (unit, phase);
            while let Some(of_unit) = self.units.get(unit) {
                if let Some(next) = of_unit.after(phase, kernel)
                    && !states.contains(&(unit, next))
                {
                    states.push((unit, next));
                }
                if !of_unit.may_end(phase) {
                    break;
                }
                (unit, phase) = (unit + 1, Phase::New);
            }
        }
        states.sort_by_key(|(unit, _)| *unit);
        states
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Kernel as K;

    /// The units that each launch can come from.
    fn place(units: &[Unit], kernels: &[Kernel]) -> Vec<Option<Vec<usize>>> {
        let mut placement = Placement::new(units.to_vec());
        let units = |placed: Vec<Placed>| placed.iter().map(|place| place.unit).collect();
        kernels.iter().map(|kernel| placement.launch(*kernel).map(units)).collect()
    }

    fn at(units: &[usize]) -> Option<Vec<usize>> {
        Some(units.to_vec())
    }

    #[test]
    fn fused_blocks_have_one_kernel_each() {
        let units = [Unit::Elementwise, Unit::One(K::Fill), Unit::Elementwise];
        let kernels = [K::FusedElementwise, K::Fill, K::FusedElementwise, K::FusedElementwise];
        assert_eq!(place(&units, &kernels), [at(&[0]), at(&[1]), at(&[2]), None]);
    }

    #[test]
    fn fallback_of_a_product_has_its_elementwise_kernel() {
        let units = [Unit::FusedMatmul, Unit::Elementwise];
        assert_eq!(place(&units, &[K::FusedMatmul, K::FusedElementwise]), [at(&[0]), at(&[1])]);
        let fallback = [K::Copy, K::Matmul, K::FusedElementwise, K::FusedElementwise];
        assert_eq!(place(&units, &fallback), [at(&[0]), at(&[0]), at(&[0]), at(&[1])]);
    }

    #[test]
    fn launches_after_an_operation_with_several_kernels_are_all_kept() {
        let units =
            [Unit::Several(K::Reduce), Unit::Any, Unit::Several(K::Reduce), Unit::One(K::Binary)];
        let kernels = [K::Reduce, K::Reduce, K::Binary];
        // The first is the first operation's for sure; what is unknown has no kernel, or any.
        assert_eq!(place(&units, &kernels), [at(&[0]), at(&[0, 1, 2]), at(&[1, 3])]);
        // An operation with one kernel between them tells.
        let units = [Unit::Several(K::Reduce), Unit::One(K::Binary), Unit::Several(K::Reduce)];
        assert_eq!(
            place(&units, &[K::Reduce, K::Binary, K::Reduce]),
            [at(&[0]), at(&[1]), at(&[2])]
        );
    }

    #[test]
    fn unexplained_launch_changes_nothing() {
        let units = [Unit::One(K::Unary), Unit::One(K::Binary)];
        assert_eq!(place(&units, &[K::Unary, K::Pool, K::Binary]), [at(&[0]), None, at(&[1])]);
        let placement = Placement::new(units.to_vec());
        let possible = [K::Unary, K::Binary]
            .map(|kernel| placement.possible(kernel).map(|placed| placed[0].unit));
        assert_eq!(possible, [Some(0), None]);
    }

    #[test]
    fn kernels_are_known_by_their_types() {
        let names = [
            (
                "burn_cubecl_fusion::optim::elemwise::optimization::elemwise_fuse::ElemwiseFuse<Cuda>",
                K::FusedElementwise,
            ),
            (
                "cubek_matmul::components::MatmulEntry<burn_cubecl_fusion::optim::matmul::args::FusedMatmulArgs, A>",
                K::FusedMatmul,
            ),
            (
                "cubek_matmul::components::MatmulEntry<cubek_matmul::launch::args::TensorArgs, A>",
                K::Matmul,
            ),
            (
                "burn_cubecl_fusion::optim::reduce::optimization::reduce_kernel_fused::ReduceKernelFused<Cuda>",
                K::FusedReduce,
            ),
            (
                "cubek_reduce::launch::base::reduce_kernel::ReduceKernel<cubek_reduce::args::TensorArgs>",
                K::Reduce,
            ),
            (
                "burn_cubecl::kernel::unary_numeric::unary_numeric::UnaryNumeric<burn_cubecl::tensor::base::CubeTensor<_>::copy::Copy>",
                K::Copy,
            ),
            (
                "burn_cubecl::kernel::binary::kernel_scalar_binop::KernelScalarBinop<burn_cubecl::kernel::binary::AddOp>",
                K::Binary,
            ),
            (
                "burn_cubecl::ops::numeric::full_device_dtype::full_kernel::FullKernel<Cuda>",
                K::Fill,
            ),
        ];
        for (name, kernel) in names {
            assert_eq!(Kernel::from_type_name(name), kernel, "{name}");
        }
    }
}
