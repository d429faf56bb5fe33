// The same in Node, with Node's own timers, texts and signals: answers come from a record of what the engine asked.
import type { IEngineHost } from '../../../src/engine/jobs';
import { AskReader, type IAskAnswer, type PutQuestion } from '../../../src/client/ask-reader';
import { CommRuns, type ICommModel } from '../../../src/widgets/comm-runs';
import { offered } from '../../../src/widgets/runs';
import { recipes } from './recipes';

interface IRecord {
  readonly args: object;
  /** By the question, as JSON. */
  readonly answers: Record<string, { json: unknown; bytes: string }>;
}

const { records, say } = globalThis as unknown as { records: IRecord[]; say: (text: string) => void };

/** A widget's model whose kernel answers from the record. */
function modelOf(answer: PutQuestion): ICommModel {
  let hear: (content: unknown, buffers: DataView[]) => void = () => undefined;
  const unused = (): void => undefined;
  return {
    get: unused,
    set: unused,
    save_changes: unused,
    off: unused,
    on: (_event, callback) => (hear = callback as typeof hear),
    send: content => {
      const { ask, method, body } = content as { ask: string; method: string; body: object };
      if (method === 'runs') {
        // The engine offers none to compare with.
        hear({ ask, json: { runs: [], warnings: [] } }, []);
        return;
      }
      void answer(method === 'run' ? 'detail' : method, body).then(({ json, bytes }) =>
        // As they come from the kernel: at any place of a larger buffer.
        hear({ ask, json }, bytes === null ? [] : [new DataView(new Uint8Array([0, ...bytes]).buffer, 1)])
      );
    }
  };
}

async function all(overComm: boolean): Promise<string[]> {
  const texts = [];
  for (const { args, answers } of records) {
    const ask = async (method: string, body: object): Promise<IAskAnswer> => {
      const answer = answers[JSON.stringify([method, body])];
      if (answer === undefined) {
        throw new Error(`Only Node asked ${JSON.stringify([method, body])}.`);
      }
      const bytes = Uint8Array.from(atob(answer.bytes), letter => letter.charCodeAt(0));
      return { json: answer.json, bytes: bytes.length > 0 ? bytes : null };
    };
    const host: IEngineHost = { ask, progress: () => undefined, reader: new AskReader(ask) };
    const runs = new CommRuns(modelOf(ask));
    const { json } = await recipes(args, host, overComm ? offered(runs) : undefined);
    runs.dispose();
    texts.push(JSON.stringify(json));
  }
  return texts;
}

void all(false).then(async texts => say(JSON.stringify([texts, await all(true)])));
