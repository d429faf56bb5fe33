import type { ViewOptions } from '../../../protocol/views.generated';
import type { IRunEntry } from '../../../tokens';
import { viewCell } from '../view-cell';
import { LIVE } from '../../shell/__tests__/memory-panel';

const OLD: IRunEntry = { ...LIVE, id: 'run-0', state: 'recorded', folder: 'megalens-runs/run-0' };
const HEATMAP: ViewOptions = { view: 'heatmap', flag: 'HiddenStates', layers: '1-4' };
const CALL = 'run.heatmap("HiddenStates", layers="1-4")';

describe('the cell of a view', () => {
  it('gets hold of the run in a notebook that does not have it', () => {
    expect(viewCell(LIVE, HEATMAP, 'run-1', [])).toBe(
      `import megalens\n\nrun = megalens.connect("run-1")\n${CALL}`
    );
    expect(viewCell(OLD, HEATMAP, null, ['x = 1'])).toBe(
      `import megalens\n\nrun = megalens.open("megalens-runs/run-0")\n${CALL}`
    );
  });

  it.each([
    ['by id', 'import megalens\nrun = megalens.connect("run-1")'],
    ['by name', "run = megalens.connect('gpt-demo')  # this one"],
    ['as the newest', 'run = megalens.connect()  # the newest live run; or its name'],
    ['again, after another', 'run = megalens.connect("other")\nrun = megalens.connect("run-1")']
  ])('is the bare call where the notebook has the run: %s', (_, cell) => {
    expect(viewCell(LIVE, HEATMAP, 'run-1', [cell])).toBe(CALL);
  });

  it.each([
    ['another run', 'run = megalens.connect("other")', 'run-1'],
    ['the newest run, which is another', 'run = megalens.connect()', 'run-2'],
    ['something else', 'run = 5', 'run-1']
  ])('leaves a run alone that is %s', (_, cell, newest) => {
    expect(viewCell(LIVE, HEATMAP, newest, [cell])).toBe(
      'import megalens\n\nmegalens.connect("run-1").heatmap("HiddenStates", layers="1-4")'
    );
  });
});
