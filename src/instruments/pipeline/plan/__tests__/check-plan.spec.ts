/** @jest-environment ./jest.environment.node.js */
import cases from '../../../../../protocol/fixtures/plans.json';
import type { Plan } from '../../protocol/pipeline.generated';
import { checkPlan } from '../check-plan';
import { PlanError } from '../plan-shape';

interface ICase {
  readonly plan: Plan;
  readonly code?: string;
  readonly operation?: string | null;
  readonly stage?: number | null;
  readonly micro_batch?: number | null;
}

function errorOf(plan: Plan): PlanError | null {
  try {
    checkPlan(plan);
    return null;
  } catch (error) {
    expect(error).toBeInstanceOf(PlanError);
    return error as PlanError;
  }
}

describe('checking a plan', () => {
  it.each(Object.entries(cases as unknown as Record<string, ICase>))(
    'says what the golden cases say: %s',
    (_, each) => {
      const error = errorOf(each.plan);
      expect(error?.code).toBe(each.code);
      if (error !== null) {
        const { operation, stage, microBatch } = error;
        expect([operation, stage, microBatch]).toEqual([each.operation, each.stage, each.micro_batch]);
        expect(error.message).toMatch(/^[A-Z0-9].*\.$/);
      }
    }
  );

  it('names a circle operation by operation', () => {
    const { plan } = (cases as unknown as Record<string, ICase>)['stages that wait for one another']!;
    const error = errorOf(plan)!;
    expect(error.cycle).toEqual(['0B0', '1B0', '1F1', '0F1']);
    expect(error.message).toContain(
      '0B0 waits for 1B0, which stands behind 1F1 on stage 1, which waits for 0F1, which stands behind 0B0 on stage 0.'
    );
  });
});
