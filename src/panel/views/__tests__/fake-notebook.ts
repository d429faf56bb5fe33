import { Widget } from '@lumino/widgets';
import type { IExecuteReply, IKernel } from '../kernel-run';

/** What a kernel answers when it is asked for `run`. */
export type Said = { data: string } | { ename: string } | 'never' | 'busy';

/** A kernel, as much of it as is used, and what it was asked. */
export function fakeKernel(said: Said): IKernel & { readonly asked: string[]; readonly ended: number } {
  const kernel = {
    status: said === 'busy' ? 'busy' : 'idle',
    asked: [] as string[],
    ended: 0,
    requestExecute: ({ code, silent, user_expressions }: Parameters<IKernel['requestExecute']>[0]) => {
      kernel.asked.push(`${code}${silent ? '' : 'loud'}${user_expressions['run']}`);
      return {
        done:
          typeof said === 'string'
            ? new Promise<IExecuteReply>(() => undefined)
            : Promise.resolve(reply(said)),
        dispose: () => void (kernel.ended += 1)
      };
    }
  };
  return kernel;
}

function reply(said: { data: string } | { ename: string }): IExecuteReply {
  const run = 'data' in said ? { data: { 'text/plain': said.data } } : said;
  return { content: { status: 'ok', user_expressions: { run } } };
}

/** As much of a notebook as is looked at. */
export class FakeNotebook extends Widget {
  constructor(sources: readonly string[], kernel: IKernel | null = null) {
    super();
    this.addClass('jp-NotebookPanel');
    this.content = {
      model: { sharedModel: { cells: sources.map(source => ({ cell_type: 'code', source })) } }
    };
    this.sessionContext = { session: { kernel } };
    document.body.append(this.node);
  }

  readonly content: unknown;
  readonly sessionContext: unknown;
}
