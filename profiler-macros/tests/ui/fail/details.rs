#[nvtx::annotate(domain = "gpu")]
fn domain_is_text() {}

#[nvtx::annotate(domain = 7)]
fn domain_is_number() {}

#[nvtx::annotate(color = )]
fn no_color() {}

#[nvtx::annotate(payload = , name = "a")]
fn no_payload() {}

#[nvtx::annotate(fields)]
fn no_list() {}

#[nvtx::annotate(fields())]
fn empty_list(x: u32) {}

#[nvtx::annotate(fields(1))]
fn no_name(x: u32) {}

#[nvtx::annotate(fields(x =))]
fn no_field_value(x: u32) {}

#[nvtx::annotate(fields(x => flop))]
fn unit_is_word(x: u32) {}

#[nvtx::annotate(payload = "text")]
fn payload_is_text() {}

static NOT_A_DOMAIN: u32 = 1;

#[nvtx::annotate(domain = NOT_A_DOMAIN)]
fn not_a_domain() {}

fn main() {}
