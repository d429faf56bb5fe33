import { readFileSync, writeFileSync } from 'node:fs';

/** Check what is answered to requests, by their names, against a file of golden answers, to the last digit. */
export async function expectGolden<R>(
  file: string,
  requests: Readonly<Record<string, R>>,
  answerOf: (request: R) => Promise<unknown>
): Promise<void> {
  const answers: Record<string, unknown> = {};
  for (const [name, request] of Object.entries(requests)) {
    answers[name] = { request, answer: await answerOf(request) };
  }
  // Set after a change of what is planned; the difference is to be read before it is committed.
  if (process.env.MEGALENS_WRITE_GOLDEN !== undefined) {
    const cases = Object.entries(answers).map(
      ([name, each]) => `${JSON.stringify(name)}: ${JSON.stringify(each)}`
    );
    writeFileSync(file, `{\n${cases.join(',\n')}\n}\n`);
  }
  expect(JSON.parse(JSON.stringify(answers))).toEqual(JSON.parse(readFileSync(file, 'utf-8')));
}
