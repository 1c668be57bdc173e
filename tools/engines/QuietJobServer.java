import java.io.IOException;
import java.io.InputStream;
import java.net.URL;
import java.security.SecureClassLoader;
import java.util.Arrays;
import java.util.Collections;
import java.util.Enumeration;
import java.util.jar.JarFile;
import java.util.zip.ZipEntry;

/**
 * Starts Beam's Flink job server out of a jar that it does not send along.
 *
 * <p>The job server uploads every jar that it finds on its class path, 150 MB, with each job. The test cluster has
 * those classes already. A class loader whose jar Beam's class path scan does not see saves the upload:
 * {@code java QuietJobServer.java job-server.jar --flink-master ...}
 */
public class QuietJobServer extends SecureClassLoader {
  private final JarFile archive;
  private final String base;

  QuietJobServer(String path) throws IOException {
    super(ClassLoader.getPlatformClassLoader());
    archive = new JarFile(path);
    base = "jar:file:" + path + "!/";
  }

  @Override
  protected Class<?> findClass(String name) throws ClassNotFoundException {
    ZipEntry entry = archive.getEntry(name.replace('.', '/') + ".class");
    if (entry == null) {
      throw new ClassNotFoundException(name);
    }
    try (InputStream in = archive.getInputStream(entry)) {
      byte[] code = in.readAllBytes();
      return defineClass(name, code, 0, code.length);
    } catch (IOException e) {
      throw new ClassNotFoundException(name, e);
    }
  }

  @Override
  protected URL findResource(String name) {
    try {
      return archive.getEntry(name) == null ? null : new URL(base + name);
    } catch (IOException e) {
      return null;
    }
  }

  @Override
  protected Enumeration<URL> findResources(String name) {
    URL found = findResource(name);
    return found == null ? Collections.emptyEnumeration() : Collections.enumeration(Arrays.asList(found));
  }

  public static void main(String[] args) throws Exception {
    ClassLoader loader = new QuietJobServer(args[0]);
    Thread.currentThread().setContextClassLoader(loader);
    loader
        .loadClass("org.apache.beam.runners.flink.FlinkJobServerDriver")
        .getMethod("main", String[].class)
        .invoke(null, (Object) Arrays.copyOfRange(args, 1, args.length));
  }
}
