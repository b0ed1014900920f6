//! A small GPT in candle, trained for some steps and asked for some tokens, with the GPU time of every module.
//!
//! The model has spans as those of `candle_transformers`; of the profiler are the three lines with `profiler` in them.
//!
//! ```sh
//! cargo run --release --example gpt -- gpt.gpuprof
//! ```
//!
//! `--plain` profiles nothing, `--steps N` sets the steps. `--alone` waits for the GPU wherever a range begins or ends, and counts
//! kernels by time alone: what every module launches, by another way.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use candle_core::{D, DType, Device, IndexOp, Module, Result, Tensor};
use candle_nn::{
    AdamW, Embedding, Init, Linear, Optimizer, ParamsAdamW, VarBuilder, VarMap, embedding, linear,
    loss, ops,
};
use gpu_profiler_candle::InRange;
use profiler_core::Profile;
use tracing::{Span, info_span, trace_span};

const VOCABULARY: usize = 256;
const WIDTH: usize = 128;
const HEADS: usize = 4;
const LAYERS: usize = 4;
const CONTEXT: usize = 64;
const BATCH: usize = 8;

/// A normalisation with gradients; the faster kernel of `candle_nn::LayerNorm` has none.
struct Norm {
    weight: Tensor,
    bias: Tensor,
    span: Span,
}

impl Norm {
    fn new(builder: VarBuilder<'_>) -> Result<Self> {
        let weight = builder.get_with_hints(WIDTH, "weight", Init::Const(1.0))?;
        let bias = builder.get_with_hints(WIDTH, "bias", Init::Const(0.0))?;
        Ok(Self { weight, bias, span: trace_span!("norm") })
    }
}

impl Module for Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.span.in_scope(|| ops::layer_norm_slow(x, &self.weight, &self.bias, 1e-5))
    }
}

struct Attention {
    qkv: Linear,
    out: Linear,
    span: Span,
}

impl Attention {
    fn new(builder: VarBuilder<'_>) -> Result<Self> {
        let qkv = linear(WIDTH, 3 * WIDTH, builder.pp("qkv"))?;
        let out = linear(WIDTH, WIDTH, builder.pp("out"))?;
        Ok(Self { qkv, out, span: trace_span!("attention") })
    }

    /// `mask` has minus infinity at what a token may not see. `cache` holds keys and values of earlier tokens.
    fn forward(
        &self,
        x: &Tensor,
        mask: Option<&Tensor>,
        cache: Option<&mut Option<(Tensor, Tensor)>>,
    ) -> Result<Tensor> {
        let _entered = self.span.enter();
        let (batch, tokens, _) = x.dims3()?;
        let heads = self.qkv.forward(x)?.reshape((batch, tokens, 3, HEADS, WIDTH / HEADS))?;
        let part = |n: usize| heads.i((.., .., n))?.transpose(1, 2)?.contiguous();
        let (q, mut k, mut v) = (part(0)?, part(1)?, part(2)?);
        if let Some(cache) = cache {
            if let Some((keys, values)) = cache.take() {
                k = Tensor::cat(&[&keys, &k], 2)?;
                v = Tensor::cat(&[&values, &v], 2)?;
            }
            *cache = Some((k.clone(), v.clone()));
        }
        let mut scores = (q.matmul(&k.t()?)? / ((WIDTH / HEADS) as f64).sqrt())?;
        if let Some(mask) = mask {
            scores = scores.broadcast_add(mask)?;
        }
        let y = ops::softmax(&scores, D::Minus1)?.matmul(&v)?;
        self.out.forward(&y.transpose(1, 2)?.reshape((batch, tokens, WIDTH))?)
    }
}

struct Block {
    norm: (Norm, Norm),
    attention: Attention,
    mlp: (Linear, Linear),
    span: Span,
    span_mlp: Span,
}

impl Block {
    fn new(builder: VarBuilder<'_>) -> Result<Self> {
        let norm = |name: &str| Norm::new(builder.pp(name));
        let mlp = (
            linear(WIDTH, 4 * WIDTH, builder.pp("up"))?,
            linear(4 * WIDTH, WIDTH, builder.pp("down"))?,
        );
        let attention = Attention::new(builder.pp("attention"))?;
        let (span, span_mlp) = (trace_span!("layer"), trace_span!("mlp"));
        Ok(Self { norm: (norm("norm1")?, norm("norm2")?), attention, mlp, span, span_mlp })
    }

    fn forward(
        &self,
        x: &Tensor,
        mask: Option<&Tensor>,
        cache: Option<&mut Option<(Tensor, Tensor)>>,
    ) -> Result<Tensor> {
        let _entered = self.span.enter();
        let x = (x + self.attention.forward(&self.norm.0.forward(x)?, mask, cache)?)?;
        let _mlp = self.span_mlp.enter();
        let y = self.mlp.0.forward(&self.norm.1.forward(&x)?)?.gelu()?;
        x + self.mlp.1.forward(&y)?
    }
}

struct Gpt {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    norm: Norm,
    head: Linear,
    span: Span,
    span_embedding: Span,
    span_head: Span,
}

type Cache = Vec<Option<(Tensor, Tensor)>>;

impl Gpt {
    fn new(builder: VarBuilder<'_>) -> Result<Self> {
        let block = |n: usize| Block::new(builder.pp(format!("layer{n}")));
        Ok(Self {
            tokens: embedding(VOCABULARY, WIDTH, builder.pp("tokens"))?,
            positions: embedding(CONTEXT, WIDTH, builder.pp("positions"))?,
            blocks: (0..LAYERS).map(block).collect::<Result<_>>()?,
            norm: Norm::new(builder.pp("norm"))?,
            head: linear(WIDTH, VOCABULARY, builder.pp("head"))?,
            span: trace_span!("gpt"),
            span_embedding: trace_span!("embedding"),
            span_head: trace_span!("head"),
        })
    }

    /// Logits of the next token at each place. With a cache, `ids` are the tokens after those in it.
    fn forward(&self, ids: &Tensor, first: usize, mut cache: Option<&mut Cache>) -> Result<Tensor> {
        let _entered = self.span.enter();
        let count = ids.dim(1)?;
        let mut x = self.span_embedding.in_scope(|| {
            let places = Tensor::arange(first as u32, (first + count) as u32, ids.device())?;
            self.tokens.forward(ids)?.broadcast_add(&self.positions.forward(&places)?)
        })?;
        let mask = (count > 1).then(|| mask(count, ids.device())).transpose()?;
        for (n, block) in self.blocks.iter().enumerate() {
            let cache = cache.as_mut().map(|cache| &mut cache[n]);
            x = block.forward(&x, mask.as_ref(), cache)?;
        }
        let _head = self.span_head.enter();
        self.head.forward(&self.norm.forward(&x)?)
    }
}

/// Minus infinity above the diagonal.
fn mask(count: usize, device: &Device) -> Result<Tensor> {
    let row = |i: usize| (0..count).map(move |j| if j > i { f32::NEG_INFINITY } else { 0.0 });
    Tensor::from_iter((0..count).flat_map(row), device)?.reshape((count, count))
}

fn train(model: &Gpt, variables: &VarMap, device: &Device, steps: usize) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    let parameters = ParamsAdamW { lr: 1e-3, ..ParamsAdamW::default() };
    let mut optimizer = AdamW::new(variables.all_vars(), parameters)?.in_range("optimizer");
    for step in 0..steps {
        let start = Instant::now();
        let _step = info_span!("step", step).entered();
        let (input, target) = info_span!("data").in_scope(|| {
            // A text of which the next letter is known.
            let text = (0..BATCH * (CONTEXT + 1)).map(|i| ((i * 7 + step) % 97) as u32);
            let text = Tensor::from_iter(text, device)?.reshape((BATCH, CONTEXT + 1))?;
            Ok::<_, candle_core::Error>((text.i((.., ..CONTEXT))?, text.i((.., 1..))?))
        })?;
        let loss = info_span!("forward").in_scope(|| {
            let logits = model.forward(&input.contiguous()?, 0, None)?.flatten_to(1)?;
            info_span!("loss").in_scope(|| loss::cross_entropy(&logits, &target.flatten_all()?))
        })?;
        optimizer.backward_step(&loss)?;
        device.synchronize()?;
        times.push(start.elapsed());
    }
    Ok(times)
}

fn generate(model: &Gpt, device: &Device, prompt: &[u32], tokens: usize) -> Result<Vec<u32>> {
    let mut cache: Cache = vec![None; LAYERS];
    let mut text = prompt.to_vec();
    let mut next = Tensor::new(prompt, device)?.unsqueeze(0)?;
    for token in 0..tokens {
        let _token = info_span!("token", token).entered();
        let first = text.len() - next.dim(1)?;
        let logits = model.forward(&next, first, Some(&mut cache))?;
        let _sample = info_span!("sample").entered();
        let best = logits.i((0, logits.dim(1)? - 1))?.argmax(0)?.to_scalar::<u32>()?;
        text.push(best);
        next = Tensor::new(&[[best % VOCABULARY as u32]], device)?;
    }
    Ok(text)
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let (mut plain, mut alone, mut steps, mut file) = (false, false, 5, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--plain" => plain = true,
            "--alone" => alone = true,
            "--steps" => steps = arguments.next().ok_or("--steps needs a number")?.parse()?,
            _ => file = Some(argument),
        }
    }
    let profiler = if plain { None } else { Some(gpu_profiler_candle::start()?) }; // before the model is built
    let device = Device::new_cuda(0)?;
    if alone {
        synchronise_at_boundaries(&device);
    }
    let variables = VarMap::new();
    let model = Gpt::new(VarBuilder::from_varmap(&variables, DType::F32, &device))?;
    let mut times = train(&model, &variables, &device, steps)?;
    times.sort();
    println!("{steps} steps: median {:?}", times.get(steps / 2).copied().unwrap_or_default());
    let text = generate(&model, &device, &[1, 8, 15], 16)?;
    println!("generated {} tokens\n", text.len() - 3);
    let Some(profiler) = profiler else { return Ok(()) };
    let profile = profiler.finish()?;
    println!("{profile}");
    report(&profile, alone);
    if let Some(file) = file {
        profile.save(file)?;
    }
    Ok(())
}

/// What a token costs, warm, and the kernels by the range that they are attributed to and within whose time they ran.
fn report(profile: &Profile, alone: bool) {
    println!("\n{}", profile.steps("token").warm());
    let mut kernels: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for range in profile.ranges() {
        let of_path = kernels.entry(range.node().path()).or_default();
        of_path.0 += range.inclusive().kernels;
        if alone {
            let within = |at: Duration| range.start() <= at && at < range.end();
            let starts = profile.query().kernels().iter().filter_map(|kernel| kernel.start());
            of_path.1 += starts.filter(|start| within(*start)).count() as u64;
        }
    }
    let (all, outside) = (profile.totals().kernels, profile.outside_ranges().kernels);
    println!("{} of {all} kernels in ranges", all - outside);
    for (path, (attributed, within)) in kernels {
        let within = if alone { format!(", {within} by time") } else { String::new() };
        println!("{path}: {attributed} kernels{within}");
    }
}

/// Makes every range run alone: what was issued before has ended when it begins, and its own work when it ends.
fn synchronise_at_boundaries(device: &Device) {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    fn changed() {
        let _ = DEVICE.get().map(Device::synchronize);
    }
    DEVICE.get_or_init(|| device.clone());
    profiler_core::session::on_context_change(changed);
}
