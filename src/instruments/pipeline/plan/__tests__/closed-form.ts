import type { ScheduleName } from '../../protocol/pipeline.generated';

/** Uniform times of one micro-batch on one stage, all its chunks together; nothing is lost between stages. */
interface IUniformTimes {
  readonly stages: number;
  readonly chunks: number;
  /** F, I and W in ms; a whole backward pass B is I + W. */
  readonly forward: number;
  readonly input: number;
  readonly weight: number;
}

/**
 * The time (ms) that a stage is idle between its begin of a step and the time when it can begin the next one,
 * as the authors of a schedule give it; null where they do not.
 *
 * All assume messages that take no time, and as many micro-batches as the schedule needs to fill the
 * pipeline; null as well where an author's assumption about F, I and W does not hold.
 *
 * - GPipe, 1F1B: (P-1)(F+B). Huang et al. 2019; Narayanan et al. 2021, "Efficient Large-Scale Language Model
 *   Training on GPU Clusters Using Megatron-LM", section 2.2.1.
 * - Interleaved 1F1B, depth-first: (P-1)(F+B)/V. Narayanan et al. 2021, section 2.2.2.
 * - Breadth-first, and MegaDPP, which prefers the same order: (P-1)(F+B)/V. Lamy-Poirier 2022, "Breadth-First
 *   Pipeline Parallelism", section 4.1.
 * - ZB-H1: (P-1)(F+I-W), ZB-H2: (P-1)(F+I-2W), where W is at most F and I. Qi et al. 2023, "Zero Bubble
 *   Pipeline Parallelism", table 1.
 * - ZB-V: 0 where F = I = W. Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", section 4.
 * - DualPipe: (P/2-1)(F&B + B - 3W), F&B being a forward and a backward pass that overlap and give on what
 *   they have when both are done. DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", table 2. It holds where F
 *   = I and W is at most I. One after the other, as plans run them, it is `inTurnBubble`.
 * - DualPipeV: the same of 2P virtual stages on P stages: (P-1)(F&B + B - 3W)/2. README of the DualPipe
 *   repository.
 */
export function closedFormBubble(
  schedule: ScheduleName,
  { stages, chunks, forward, input, weight }: IUniformTimes
): number | null {
  const backward = input + weight;
  const others = stages - 1;
  const shorter = Math.min(forward, input);
  // F&B + B - 3W.
  const overlap = forward === input && weight <= input ? forward + backward + backward - 3 * weight : null;
  switch (schedule) {
    case 'gpipe':
    case '1f1b':
      return others * (forward + backward);
    case 'interleaved_1f1b':
    case 'depth_first':
    case 'breadth_first':
    case 'megadpp':
      return (others * (forward + backward)) / chunks;
    case 'zb_h1':
      return weight <= shorter ? others * (forward + input - weight) : null;
    case 'zb_h2':
      return weight <= shorter ? others * (forward + input - 2 * weight) : null;
    case 'zb_v':
      return forward === input && input === weight ? 0 : null;
    case 'dualpipe':
      return overlap === null ? null : (stages / 2 - 1) * overlap;
    case 'dualpipev':
      return overlap === null ? null : (others * overlap) / 2;
    case 'search':
      return null;
  }
}

/**
 * The same of DualPipe and DualPipeV where the two passes of a pair run one after the other, and each hands
 * on what it has when it is done: (P/2-1)(F+I-W), of 2P virtual stages on P stages (P-1)(F+I-W)/2, where I is
 * at most F and W at most I. F + B for F&B in the formula of the authors would count I twice.
 */
export function inTurnBubble(
  schedule: 'dualpipe' | 'dualpipev',
  { stages, forward, input, weight }: IUniformTimes
): number | null {
  const deep = schedule === 'dualpipe' ? stages / 2 - 1 : (stages - 1) / 2;
  return input <= forward && weight <= input ? deep * (forward + input - weight) : null;
}
