/** @jest-environment ./jest.environment.node.js */
import { AskReader } from '../../../../client/ask-reader';
import { ClientError } from '../../../../client/rest';
import { PIPELINE, pipelineOf } from '../pipeline-api';
import { RunsApi } from '../../../../client/runs-api';
import { pipelineAnswer } from './pipeline-answer';

const COLUMNS = ['step', 'stage', 'rank', 'chunk', 'virtual_stage', 'micro_batch', 'begin_ms', 'end_ms'];

function refused(value: unknown): string {
  try {
    pipelineOf(value);
  } catch (error) {
    expect(error).toBeInstanceOf(ClientError);
    expect((error as ClientError).code).toBe('bad-answer');
    return (error as ClientError).message;
  }
  throw new Error('It was taken.');
}

it('takes an answer as it is', () => {
  const { steps_there: there, micro_batches: microBatches, operations, ...others } = pipelineAnswer();
  const { virtual_stage, micro_batch, begin_ms, end_ms, ...columns } = operations as Record<string, unknown>;
  expect(pipelineOf(pipelineAnswer())).toEqual({
    ...others,
    there,
    microBatches,
    operations: {
      ...columns,
      virtualStage: virtual_stage,
      microBatch: micro_batch,
      begin: begin_ms,
      end: end_ms
    }
  });
});

it('is nothing where there are no spans', () => {
  expect(pipelineOf({ steps_there: null })).toBeNull();
});

it.each(COLUMNS)('refuses a column %s that is shorter, longer, or no list', name => {
  for (const column of [[0], new Array(7).fill(0), null, 'FFFFFF', { length: 6 }]) {
    refused(pipelineAnswer({}, { [name]: column }));
  }
});

it.each(COLUMNS)('refuses values of %s that are no such numbers', name => {
  for (const value of [NaN, Infinity, null, '3', [0], true, -2e300]) {
    refused(pipelineAnswer({}, { [name]: [value, 7, 9.5, 2, 4, 0] }));
  }
});

it.each<[string, object, object]>([
  ['a stage that is not there', {}, { stage: [0, 0, 0, 1, 2, 0] }],
  ['a chunk that is not there', {}, { chunk: [0, 0, -1, 0, 1, 0] }],
  ['a virtual stage that is not there', {}, { virtual_stage: [0, 0, -1, 1, 2, 0] }],
  ['a micro-batch that is not there', {}, { micro_batch: [0, 0, -1, 0, 1, 0] }],
  ['a step that is not there', {}, { step: [3, 3, 3, 3, 3, 5] }],
  ['an end before the beginning', {}, { end_ms: [2, 6, 10, 4, 6.5, 2] }],
  ['a kind that nobody knows', {}, { kind: ['F', 'B', 'O', 'F', 'constructor', 'F'] }],
  ['a placement that nobody knows', { placement: '__proto__' }, {}],
  ['ranks of other stages', { ranks: [0] }, {}],
  ['no stages', { stages: 0, ranks: [] }, {}],
  ['more steps than are answered', { steps: new Array(21).fill({ step: 3, duration: 1 }) }, {}],
  ['a duration that is no number', { steps: [{ step: 3, duration: '1' }] }, {}],
  ['one step only', { steps_there: [1] }, {}],
  ['counts that are too large', { micro_batches: 1e300 }, {}],
  ['more operations than are answered', {}, { kind: new Array(200_001).fill('F') }]
])('refuses %s', (_, more, operations) => {
  expect(refused(pipelineAnswer(more, operations))).toContain('Its Megalens may be of another version');
});

it('refuses what is no answer', () => {
  for (const value of [null, undefined, 3, 'no', [], {}]) {
    refused(value);
  }
});

it('cuts problems that are too many or too long', () => {
  const problems = new Array(1000).fill('x'.repeat(5000));
  const found = pipelineOf(pipelineAnswer({ problems }))?.problems;
  expect(found).toHaveLength(100);
  expect(found?.[0]).toHaveLength(1000);
});

it('is asked by the endpoint and through the engine with one request', async () => {
  const asked: unknown[] = [];
  const api = new RunsApi({
    baseUrl: '/',
    fetch: (url, { method, body }) => {
      asked.push([method, url, JSON.parse(String(body))]);
      return Promise.resolve(new Response(JSON.stringify(pipelineAnswer())));
    }
  });
  const reader = new AskReader((method, body) => {
    asked.push([method, body]);
    return Promise.resolve({ json: pipelineAnswer(), bytes: null });
  });
  const request = { first: 3, last: 4, replica: 0 };
  const answer = await api.asker(PIPELINE)('r 1', request);
  expect(answer).toEqual(await reader.asker(PIPELINE)?.('r1', request));
  expect(answer?.steps).toHaveLength(2);
  expect(asked).toEqual([
    ['POST', '/megalens/api/runs/r%201/pipeline', request],
    ['pipeline', { run: 'r1', request }]
  ]);
});
