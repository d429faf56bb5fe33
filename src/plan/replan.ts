import type { PipelineTimes, Plan } from '../protocol/pipeline.generated';
import { checkPlan } from './check-plan';
import { overLimit, peakMemory } from './memory';
import { Simulation } from './simulation';
import { timesFor } from './stage-times';

/** What a candidate's step would be with other times. */
export interface IReplanned {
  readonly plan: Plan;
  /** Without jitter. */
  readonly stepMs: number;
  /** The most that a stage holds. */
  readonly peakBytes: number;
}

/** A plan that is ready to be simulated again and again, such as while a training runs. */
export class Candidate {
  /**
   * @throws PlanError where the plan is wrong.
   */
  constructor(readonly plan: Plan) {
    const table = checkPlan(plan);
    this.simulation = new Simulation(table, timesFor({ forward: 0 }, plan));
  }

  /** Simulate it with other times. */
  step(times: PipelineTimes): IReplanned {
    const { simulation, plan } = this;
    const own = timesFor(times, plan);
    simulation.retime(own);
    const stepMs = simulation.run();
    const peakBytes = peakMemory(simulation.table, own).reduce((most, bytes) => Math.max(most, bytes), 0);
    return { plan, stepMs, peakBytes };
  }

  private readonly simulation: Simulation;
}

/**
 * Simulate candidates with new times.
 *
 * @param memoryBytes - What a stage may hold; those that hold more are left out.
 * @returns The shortest step first; of equal ones that of the candidate that came first.
 */
export function replan(
  times: PipelineTimes,
  candidates: readonly Candidate[],
  memoryBytes = Infinity
): IReplanned[] {
  return candidates
    .map(candidate => candidate.step(times))
    .filter(({ peakBytes }) => overLimit(peakBytes, memoryBytes) === 0)
    .sort((a, b) => a.stepMs - b.stepMs);
}
