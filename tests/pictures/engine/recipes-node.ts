// The same in Node, with Node's own timers, texts and signals: answers come from a record of what the engine asked.
import type { IEngineAnswer, IEngineHost } from '../../../src/engine/jobs';
import { PipeReader } from '../../../src/engine/pipe';
import { recipes } from './recipes';

interface IRecord {
  readonly args: object;
  /** By the question, as JSON. */
  readonly answers: Record<string, { json: unknown; bytes: string }>;
}

const { records, say } = globalThis as unknown as { records: IRecord[]; say: (text: string) => void };

async function all(): Promise<string[]> {
  const texts = [];
  for (const { args, answers } of records) {
    const ask = async (method: string, body: object): Promise<IEngineAnswer> => {
      const answer = answers[JSON.stringify([method, body])];
      if (answer === undefined) {
        throw new Error(`Only Node asked ${JSON.stringify([method, body])}.`);
      }
      const bytes = Uint8Array.from(atob(answer.bytes), letter => letter.charCodeAt(0));
      return { json: answer.json, bytes: bytes.length > 0 ? bytes : null };
    };
    const host: IEngineHost = { ask, progress: () => undefined, reader: run => new PipeReader(run, ask) };
    texts.push(JSON.stringify((await recipes(args, host)).json));
  }
  return texts;
}

void all().then(texts => say(JSON.stringify(texts)));
