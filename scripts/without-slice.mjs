// Takes instruments out of a copy of the repository, as `node scripts/without-slice.mjs NAME… FOLDER`: whoever tests that the rest builds goes on there.
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, rmSync, symlinkSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const names = process.argv.slice(2);
const folder = names.pop();
if (!names.length || names.some(name => !existsSync(join(root, 'src/instruments', name)))) {
  throw new Error('Say which folders of src/instruments are left out, and where the copy goes.');
}
const copy = resolve(folder);
const files = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
  cwd: root,
  encoding: 'utf8'
});
for (const path of files.split('\0')) {
  const left =
    ['src/instruments', 'megalens/instruments', 'tests/instruments'].some(each =>
      names.some(name => path.startsWith(`${each}/${name}/`))
    ) ||
    // Tests in a browser draw every view of one synthetic run.
    path.startsWith('ui-tests/');
  if (path !== '' && !left && existsSync(join(root, path))) {
    cpSync(join(root, path), join(copy, path));
  }
}
rmSync(join(copy, 'node_modules'), { force: true });
symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
execFileSync('npm', ['run', '--silent', 'generate'], { cwd: copy, stdio: 'inherit' });
