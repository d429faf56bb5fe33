/** @jest-environment ./jest.environment.node.js */
import { hasRows, openRun, partsOf } from '../open-run';
import { ControlledRun } from './controlled-run';

it('a stream of another package has rows where the run declares it or counts them, and only there', () => {
  const source = new ControlledRun();
  const open = openRun('run', source);
  expect(hasRows(open, 'weight_norms')).toBe(false);
  expect(hasRows(open, 'scalars')).toBe(true);
  Object.assign(source, { hello: { ...source.hello, streams: { weight_norms: {} } } });
  expect(hasRows(open, 'weight_norms')).toBe(true);
  Object.assign(source, { hello: { ...source.hello, streams: {} } });
  Object.assign(source, { status: { ...source.status, streams: { weight_norms: { rows: 1, bytes: 1 } } } });
  expect(hasRows(open, 'weight_norms')).toBe(true);
  partsOf(open).forEach(part => part.dispose());
});
