/** @jest-environment ./jest.environment.node.js */
import type { ViewOptions } from '../../../protocol/views.generated';
import type { IRunEntry } from '../../../tokens';
import { viewCell } from '../kernel-run';
import { LIVE } from '../../shell/__tests__/memory-panel';

const OLD: IRunEntry = { ...LIVE, id: 'run-0', state: 'recorded', folder: 'megalens-runs/run-0' };
const HEATMAP: ViewOptions = { view: 'heatmap', flag: 'HiddenStates', layers: '1-4' };
const CALL = 'run.heatmap("HiddenStates", layers="1-4")';

describe('the cell of a view', () => {
  it('gets hold of the run in a notebook that does not have it', () => {
    expect(viewCell(LIVE, HEATMAP, { kind: 'free' })).toBe(
      `import megalens\n\nrun = megalens.connect("run-1")\n${CALL}`
    );
    expect(viewCell(OLD, HEATMAP, { kind: 'free' })).toBe(
      `import megalens\n\nrun = megalens.connect("run-0")\n${CALL}`
    );
  });

  it('names the folder of a recording that a kernel does not find by its id', () => {
    const folder = 'old/megalens-runs/run-0';
    expect(viewCell({ ...OLD, folder }, HEATMAP, { kind: 'free' })).toContain(
      `run = megalens.open("${folder}")`
    );
  });

  it('is the bare call where the kernel has that very run', () => {
    expect(viewCell(LIVE, HEATMAP, { kind: 'run', id: 'run-1' })).toBe(CALL);
    expect(viewCell(OLD, HEATMAP, { kind: 'run', id: 'run-0' })).toBe(CALL);
  });

  it.each([{ kind: 'run', id: 'run-2' } as const, { kind: 'taken' } as const])(
    'opens its own run beside another: %j',
    held => {
      expect(viewCell(LIVE, HEATMAP, held)).toBe(
        'import megalens\n\nmegalens.connect("run-1").heatmap("HiddenStates", layers="1-4")'
      );
    }
  );
});
